// Program: problems in the order in which they run, and the tensors that they share.
//
// Chains (geom/chain.hpp) and the gradients of chains (geom/gradient_chain.hpp) are programs. A
// call of one problem needs none; the tile loop runs it as one node.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <vector>

#include "geom/problem.hpp"

namespace oocdnn {

// An operand of a node.
struct TensorUse {
  size_t node = 0;
  Operand operand = Operand::kX;

  bool operator==(const TensorUse&) const = default;
};

// A tensor that several nodes use, or that one node writes and nobody reads.
struct ProgramTensor {
  // In the order of the nodes. The first use writes the tensor or, if `outer`, fetches it.
  std::vector<TensorUse> uses;
  bool outer = false;  // the tensor is in the caller's memory
};

// The kind of tiles that pass through all nodes.
enum class Traversal {
  kRows,     // tiles are ranges of samples and of rows of the last result; see ChainTiles
  kSamples,  // tiles are ranges of samples
};

// For each operand of a node: whether nodes pass it to each other, so that this node neither
// fetches it from the caller nor leaves it to the caller. See Program::PassedTo.
using Inner = std::array<bool, kOperands>;

class Program {
 public:
  explicit Program(Traversal traversal = Traversal::kRows) : traversal_(traversal) {}

  [[nodiscard]] Traversal traversal() const { return traversal_; }
  [[nodiscard]] size_t size() const { return nodes_.size(); }
  const Problem& operator[](size_t node) const { return nodes_[node]; }
  [[nodiscard]] const Problem& front() const { return nodes_.front(); }
  [[nodiscard]] const Problem& back() const { return nodes_.back(); }
  [[nodiscard]] auto begin() const { return nodes_.begin(); }
  [[nodiscard]] auto end() const { return nodes_.end(); }
  // The number by which messages call a node: of the link of a chain that it belongs to.
  [[nodiscard]] size_t LinkOf(size_t node) const { return link_[node]; }

  [[nodiscard]] const std::vector<ProgramTensor>& tensors() const { return tensors_; }
  // The shared tensor that an operand is; null if the operand belongs to this node alone.
  [[nodiscard]] const ProgramTensor* TensorOf(size_t node, Operand operand) const;
  // True for a tensor that nodes pass to each other, or that is written for nobody.
  [[nodiscard]] bool IsInner(size_t node, Operand operand) const;
  // The operands that the node neither fetches from the caller nor leaves to the caller. By rows
  // these are the inner ones, since each node can fetch for itself. By samples they include the
  // caller's tensors that an earlier node has fetched.
  [[nodiscard]] Inner PassedTo(size_t node) const;

  // Adds a node; returns its number.
  size_t Append(const Problem& problem, size_t link);
  // Makes the operands one tensor. An operand may be in one call of Share.
  void Share(std::vector<TensorUse> uses, bool outer);

 private:
  static constexpr int kAlone = -1;

  Traversal traversal_;
  std::vector<Problem> nodes_;
  std::vector<size_t> link_;  // by node
  std::vector<ProgramTensor> tensors_;
  std::vector<std::array<int, kOperands>> tensor_;  // by node and operand; kAlone: not shared
};

// "a chain of 3 links, from ... to ..."
std::string TextOf(const Program& program);

}  // namespace oocdnn
