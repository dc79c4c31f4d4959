// Roles: what each operand is to a problem, looked up once. Code that walks many steps or prices
// many tilings needs mostly these.
#pragma once

#include <array>
#include <cstddef>

#include "geom/problem.hpp"

namespace oocdnn {

// Some of the operands, in their order.
class OperandList {
 public:
  void Put(Operand operand) { list_[count_++] = operand; }
  [[nodiscard]] const Operand* begin() const { return list_.data(); }
  [[nodiscard]] const Operand* end() const { return list_.data() + count_; }

 private:
  std::array<Operand, kOperands> list_{};
  size_t count_ = 0;
};

// The answers of Problem's functions of the same names.
class Roles {
 public:
  explicit Roles(const Problem& problem);

  [[nodiscard]] bool Uses(Operand operand) const { return role_[Index(operand)].uses; }
  [[nodiscard]] bool Has(Operand operand) const { return role_[Index(operand)].has; }
  [[nodiscard]] bool Stays(Operand operand) const { return role_[Index(operand)].stays; }
  [[nodiscard]] bool Writes(Operand operand) const { return role_[Index(operand)].writes; }
  [[nodiscard]] Operand sum() const { return sum_; }
  [[nodiscard]] Operand output() const { return output_; }
  [[nodiscard]] Operand source() const { return source_; }
  [[nodiscard]] bool restores() const { return restores_; }
  // Those that are used, and of them those that are read and written.
  [[nodiscard]] const OperandList& used() const { return used_; }
  [[nodiscard]] const OperandList& read() const { return read_; }
  [[nodiscard]] const OperandList& written() const { return written_; }

 private:
  struct Role {
    bool uses, has, stays, writes;
  };
  std::array<Role, kOperands> role_{};
  Operand sum_, output_, source_;
  bool restores_;
  OperandList used_, read_, written_;
};

}  // namespace oocdnn
