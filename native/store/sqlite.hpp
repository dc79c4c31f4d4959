// SQLite as far as remembering needs it. Its library is opened at run time, once, and never closed;
// where it is not installed, Open says so and all else works.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "base/status.hpp"

extern "C" {
struct sqlite3;
struct sqlite3_stmt;
}

namespace oocdnn {

// The version of SQLite; kUnsupported says why there is none.
Result<std::string> SqliteVersion();
// What helps then.
constexpr const char* kSqliteRemedy =
    "apt install libsqlite3-0, or OOCDNN_SQLITE_LIBRARY=/path/to/libsqlite3.so.0";

// What SQLite fails with is kFileError, its own code in detail(). Whether that means a file that is
// no database, or a damaged one, or one in which a statement does not end.
bool IsDamaged(const Status& status);
// True if another connection held its lock on the file beyond the patience.
bool IsBusy(const Status& status);
// A status that IsDamaged: the file holds what this library does not write.
Status Damaged(const char* why);

// A query or a change with parameters, which are counted from 1, columns from 0.
class Statement {
 public:
  Status Bind(int parameter, int64_t value);
  Status Bind(int parameter, double value);
  Status Bind(int parameter, const std::string& value);
  // Reads the next row; false after the last one. Parameters stay bound, and the next Step runs the
  // statement again.
  Result<bool> Step();

  // Columns of the row.
  [[nodiscard]] int64_t Integer(int column) const;
  [[nodiscard]] double Real(int column) const;
  [[nodiscard]] std::string Text(int column) const;

 private:
  friend class Database;
  struct End {
    void operator()(sqlite3_stmt* statement) const;
  };
  explicit Statement(sqlite3_stmt* statement) : statement_(statement) {}
  Status Check(int code, const char* what) const;
  std::unique_ptr<sqlite3_stmt, End> statement_;
};

// A connection to a database file that others may have written: triggers, views and functions with
// side effects in its schema are off, values have at most 1 MiB, and all statements together run a
// limited number of instructions. For one thread, and not across a fork; statements end before it.
class Database {
 public:
  enum class Access {
    kRead,   // of a file that exists, also in a folder that cannot be written to
    kWrite,  // makes it where it is missing; its folder must exist
  };
  // A file that others hold is waited for, for at most `patience` milliseconds in each step.
  static Result<Database> Open(const std::string& path, Access access, int patience);

  // Statements without parameters and results.
  Status Execute(const char* statements);
  Result<Statement> Prepare(const char* statement);

 private:
  struct End {
    void operator()(sqlite3* connection) const;
  };
  explicit Database(sqlite3* connection);
  Status Check(int code, const char* what) const;
  std::unique_ptr<int> looks_left_;  // of the progress handler; outlives the connection
  std::unique_ptr<sqlite3, End> connection_;
};

}  // namespace oocdnn
