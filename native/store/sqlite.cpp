#include "store/sqlite.hpp"

#include <dlfcn.h>
#include <unistd.h>

#include <string_view>

#include "base/config.hpp"

namespace oocdnn {
namespace {

constexpr const char* kFile = "libsqlite3.so.0";

// Of sqlite3.h, whose values never change.
constexpr int kOk = 0, kBusy = 5, kInterrupt = 9, kCorrupt = 11, kTooBig = 18, kNotADatabase = 26,
              kRow = 100, kDone = 101;
constexpr int kReadWrite = 2, kCreate = 4, kUri = 0x40;
constexpr int kTriggers = 1003, kDefensive = 1010, kViews = 1015, kTrustsSchema = 1017;
constexpr int kLimitLength = 0;

// A step runs some thousand instructions for each row; what takes more of them in a connection than
// the largest file of ours is a damaged file's.
constexpr int kInstructionsPerLook = 10'000, kMostLooks = 500;
constexpr int kMostValueBytes = 1 << 20;

#define OOC_SQLITE_FUNCTIONS(ENTRY)                                                  \
  ENTRY(libversion, const char*, ())                                                 \
  ENTRY(open_v2, int, (const char*, sqlite3**, int, const char*))                    \
  ENTRY(close, int, (sqlite3*))                                                      \
  ENTRY(errmsg, const char*, (sqlite3*))                                             \
  ENTRY(busy_timeout, int, (sqlite3*, int))                                          \
  ENTRY(db_config, int, (sqlite3*, int, ...))                                        \
  ENTRY(limit, int, (sqlite3*, int, int))                                            \
  ENTRY(progress_handler, void, (sqlite3*, int, int (*)(void*), void*))              \
  ENTRY(exec, int, (sqlite3*, const char*, void*, void*, char**))                    \
  ENTRY(prepare_v2, int, (sqlite3*, const char*, int, sqlite3_stmt**, const char**)) \
  ENTRY(db_handle, sqlite3*, (sqlite3_stmt*))                                        \
  ENTRY(bind_int64, int, (sqlite3_stmt*, int, long long))                            \
  ENTRY(bind_double, int, (sqlite3_stmt*, int, double))                              \
  ENTRY(bind_text, int, (sqlite3_stmt*, int, const char*, int, void (*)(void*)))     \
  ENTRY(step, int, (sqlite3_stmt*))                                                  \
  ENTRY(reset, int, (sqlite3_stmt*))                                                 \
  ENTRY(finalize, int, (sqlite3_stmt*))                                              \
  ENTRY(column_int64, long long, (sqlite3_stmt*, int))                               \
  ENTRY(column_double, double, (sqlite3_stmt*, int))                                 \
  ENTRY(column_text, const unsigned char*, (sqlite3_stmt*, int))                     \
  ENTRY(column_bytes, int, (sqlite3_stmt*, int))

struct Functions {
#define OOC_ENTRY(name, result, parameters) result(*name) parameters = nullptr;
  OOC_SQLITE_FUNCTIONS(OOC_ENTRY)
#undef OOC_ENTRY
};

Result<const Functions*> Load() {
  const std::string path = Get(Var::kSqliteLibrary).value_or(kFile);
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    return Error(Code::kUnsupported, "SQLite cannot be opened: %s", dlerror());
  }
  static Functions functions;
  struct Entry {
    const char* symbol;
    void** slot;
  };
#define OOC_ENTRY(name, result, parameters) \
  {"sqlite3_" #name, reinterpret_cast<void**>(&functions.name)},
  const Entry entries[] = {OOC_SQLITE_FUNCTIONS(OOC_ENTRY)};
#undef OOC_ENTRY
  for (const Entry& entry : entries) {
    *entry.slot = dlsym(library, entry.symbol);
    if (*entry.slot != nullptr) continue;
    return Error(Code::kUnsupported, "%s has no %s", path.c_str(), entry.symbol);
  }
  return &functions;
}

const Result<const Functions*>& Loaded() {
  static const auto* const loaded = new Result<const Functions*>(Load());  // outlives all users
  return *loaded;
}

// Only where there is a connection, so after Loaded() was well.
const Functions& Sqlite() { return *Loaded().value(); }

Status Checked(sqlite3* connection, int code, const char* what) {
  if (code == kOk) return {};
  const char* const text = Sqlite().errmsg(connection);
  return Error(Code::kFileError, "%s: %s", what, text == nullptr ? "no memory" : text)
      .WithDetail(code);
}

// The name of a file that nobody changes: SQLite then needs no lock and no file beside it.
std::string Immutable(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    const bool plain = std::string_view("%?#").find(c) == std::string_view::npos;
    uri += plain ? std::string(1, c) : Format("%%%02X", static_cast<unsigned>(c));
  }
  return uri + "?immutable=1";
}

// Called every kInstructionsPerLook; other than 0 ends the statement with kInterrupt.
int Look(void* looks_left) { return --*static_cast<int*>(looks_left) < 0 ? 1 : 0; }

// Settings that an older SQLite does not know are refused, which changes nothing.
void Distrust(sqlite3* connection) {
  constexpr struct {
    int setting, value;
  } kSettings[] = {{kTriggers, 0}, {kDefensive, 1}, {kViews, 0}, {kTrustsSchema, 0}};
  for (const auto& [setting, value] : kSettings) {
    static_cast<void>(Sqlite().db_config(connection, setting, value, nullptr));
  }
  static_cast<void>(Sqlite().limit(connection, kLimitLength, kMostValueBytes));
}

bool CanWrite(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : path.substr(0, slash + 1);
  return access(folder.c_str(), W_OK) == 0;
}

}  // namespace

Result<std::string> SqliteVersion() {
  if (!Loaded().ok()) return Loaded().status();
  return std::string(Sqlite().libversion());
}

bool IsDamaged(const Status& status) {
  return status.code() == Code::kFileError &&
         (status.detail() == kCorrupt || status.detail() == kNotADatabase ||
          status.detail() == kInterrupt || status.detail() == kTooBig);
}

bool IsBusy(const Status& status) {
  return status.code() == Code::kFileError && status.detail() == kBusy;
}

Status Damaged(const char* why) { return Error(Code::kFileError, "%s", why).WithDetail(kCorrupt); }

void Statement::End::operator()(sqlite3_stmt* statement) const { Sqlite().finalize(statement); }

Status Statement::Check(int code, const char* what) const {
  return Checked(Sqlite().db_handle(statement_.get()), code, what);
}

Status Statement::Bind(int parameter, int64_t value) {
  return Check(Sqlite().bind_int64(statement_.get(), parameter, value), "a parameter");
}

Status Statement::Bind(int parameter, double value) {
  return Check(Sqlite().bind_double(statement_.get(), parameter, value), "a parameter");
}

Status Statement::Bind(int parameter, const std::string& value) {
  const auto copied = reinterpret_cast<void (*)(void*)>(-1);  // NOLINT: SQLITE_TRANSIENT
  return Check(Sqlite().bind_text(statement_.get(), parameter, value.data(),
                                  static_cast<int>(value.size()), copied),
               "a parameter");
}

Result<bool> Statement::Step() {
  const int code = Sqlite().step(statement_.get());
  if (code == kRow) return true;
  Status status = code == kDone ? Status() : Check(code, "a step");
  static_cast<void>(Sqlite().reset(statement_.get()));  // repeats the code
  if (!status.ok()) return status;
  return false;
}

int64_t Statement::Integer(int column) const {
  return Sqlite().column_int64(statement_.get(), column);
}

double Statement::Real(int column) const {
  return Sqlite().column_double(statement_.get(), column);
}

std::string Statement::Text(int column) const {
  const unsigned char* const text = Sqlite().column_text(statement_.get(), column);
  if (text == nullptr) return "";
  const auto bytes = static_cast<size_t>(Sqlite().column_bytes(statement_.get(), column));
  return {reinterpret_cast<const char*>(text), bytes};
}

Database::Database(sqlite3* connection)
    : looks_left_(std::make_unique<int>(kMostLooks)), connection_(connection) {}

void Database::End::operator()(sqlite3* connection) const { Sqlite().close(connection); }

Status Database::Check(int code, const char* what) const {
  return Checked(connection_.get(), code, what);
}

Result<Database> Database::Open(const std::string& path, Access access, int patience) {
  if (!Loaded().ok()) return Loaded().status();
  const bool frozen = access == Access::kRead && !CanWrite(path);
  const std::string name = frozen ? Immutable(path) : path;
  const int flags = kReadWrite | (access == Access::kWrite ? kCreate : 0) | (frozen ? kUri : 0);
  sqlite3* connection = nullptr;
  const int code = Sqlite().open_v2(name.c_str(), &connection, flags, nullptr);
  Database database(connection);  // also where opening failed
  OOC_TRY(database.Check(code, "opening"));
  Distrust(connection);
  Sqlite().progress_handler(connection, kInstructionsPerLook, Look, database.looks_left_.get());
  OOC_TRY(database.Check(Sqlite().busy_timeout(connection, patience), "patience"));
  return database;
}

Status Database::Execute(const char* statements) {
  return Check(Sqlite().exec(connection_.get(), statements, nullptr, nullptr, nullptr), statements);
}

Result<Statement> Database::Prepare(const char* statement) {
  sqlite3_stmt* prepared = nullptr;
  const int code = Sqlite().prepare_v2(connection_.get(), statement, -1, &prepared, nullptr);
  OOC_TRY(Check(code, statement));
  return Statement(prepared);
}

}  // namespace oocdnn
