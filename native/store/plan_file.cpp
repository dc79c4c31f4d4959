#include "store/plan_file.hpp"

#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <system_error>

#include "base/cache.hpp"
#include "base/files.hpp"
#include "base/process_lock.hpp"
#include "store/sqlite.hpp"

namespace oocdnn {
namespace {

// Reading holds up the first call, writing the end of the process.
constexpr int kReadPatience = 200, kWritePatience = 2000;  // milliseconds

// What a database says in its header of whose it is, and where.
constexpr std::string_view kMagic = "SQLite format 3", kOurs = "oocd";
constexpr size_t kOwnerAt = 68;

// Another layout takes another name, so that versions of this library share the file.
constexpr const char* kMakeTable =
    "CREATE TABLE plans1 (machine TEXT, key INTEGER, budget INTEGER, problem TEXT, "
    "plan TEXT, bytes INTEGER, run_seconds REAL, found INTEGER, "
    "PRIMARY KEY (machine, key, budget)) WITHOUT ROWID";
constexpr const char* kSchema =
    "SELECT sql FROM sqlite_master WHERE 'plans1' IN (lower(name), lower(tbl_name))";
constexpr const char* kSelect =
    "SELECT key, budget, problem, plan, bytes, run_seconds FROM plans1 WHERE machine = ?1";
constexpr const char* kInsert =
    "INSERT OR REPLACE INTO plans1 (machine, key, budget, problem, plan, bytes, run_seconds, found)"
    " VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8)";
constexpr const char* kDelete =
    "DELETE FROM plans1 WHERE machine = ?1 AND key = ?2 AND budget = ?3";
// The newest are kept; a process reads those of its machine in some milliseconds.
constexpr const char* kPrune =
    "DELETE FROM plans1 WHERE found < "
    "(SELECT found FROM plans1 ORDER BY found DESC LIMIT 1 OFFSET 4095)";

Status Insert(Database* database, const std::string& machine, const PlanTable& found) {
  OOC_ASSIGN(Statement insert, database->Prepare(kInsert));
  OOC_TRY(insert.Bind(1, machine));
  for (const auto& [key, plan] : found) {
    OOC_TRY(insert.Bind(2, static_cast<int64_t>(key.first)));
    OOC_TRY(insert.Bind(3, key.second));
    OOC_TRY(insert.Bind(4, plan.problem));
    OOC_TRY(insert.Bind(5, plan.plan));
    OOC_TRY(insert.Bind(6, plan.bytes));
    OOC_TRY(insert.Bind(7, plan.run_seconds));
    OOC_TRY(insert.Bind(8, static_cast<int64_t>(std::time(nullptr))));
    OOC_TRY(insert.Step().status());
  }
  return {};
}

Status Delete(Database* database, const std::string& machine, const std::vector<PlanKey>& dropped) {
  OOC_ASSIGN(Statement remove, database->Prepare(kDelete));
  OOC_TRY(remove.Bind(1, machine));
  for (const PlanKey& key : dropped) {
    OOC_TRY(remove.Bind(2, static_cast<int64_t>(key.first)));
    OOC_TRY(remove.Bind(3, key.second));
    OOC_TRY(remove.Step().status());
  }
  return {};
}

// The file's mark: whose it is, and 0 where nobody has said so.
Result<int64_t> OwnerOf(Database* database) {
  OOC_ASSIGN(Statement owner, database->Prepare("PRAGMA application_id"));
  OOC_ASSIGN(const bool known, owner.Step());
  return known ? owner.Integer(0) : 0;
}

// Before the switch to a log beside the file, so that the header has it from the beginning.
Status Own(Database* database) {
  OOC_ASSIGN(const int64_t owner, OwnerOf(database));
  if (owner != 0) return {};
  int64_t id = 0;
  for (const char c : kOurs) id = id << 8 | static_cast<unsigned char>(c);
  return database->Execute(
      Format("PRAGMA application_id = %lld", static_cast<long long>(id)).c_str());
}

// True if this library can have written it.
bool IsPlausible(const RememberedPlan& plan) {
  constexpr double kMostSeconds = 1e9;
  return plan.bytes >= 0 && plan.run_seconds >= 0.0 && plan.run_seconds <= kMostSeconds;
}

// True if the table is there. A Damaged status if it is not the table that this library makes, or
// if a trigger, view or index has its name or is on it.
Result<bool> HasTable(Database* database) {
  OOC_ASSIGN(Statement schema, database->Prepare(kSchema));
  bool there = false;
  for (;;) {
    OOC_ASSIGN(const bool more, schema.Step());
    if (!more) return there;
    if (there || schema.Text(0) != kMakeTable) return Damaged("plans1 is not the table of plans");
    there = true;
  }
}

// The settings and the table of a file that may be new.
Status Prepare(Database* database) {
  OOC_TRY(Own(database));
  // A connection that fails to switch leaves the switch to another process.
  Status switched = database->Execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL");
  if (IsDamaged(switched)) return switched;
  OOC_TRY(database->Execute("BEGIN IMMEDIATE"));
  OOC_ASSIGN(const bool there, HasTable(database));
  return there ? Status() : database->Execute(kMakeTable);
}

// Makes the file elsewhere and then gives it its name. SQLite waits for the disk while it makes a
// database, and locks it for as long; another process would wait for both. Without effect where the
// file is there by then, or where its folder is not writable: opening it says why.
void MakeFile(const std::string& file) {
  std::string folder = file + ".XXXXXX";
  if (mkdtemp(folder.data()) == nullptr) return;
  const std::string made = folder + "/plans";
  const auto make = [&]() -> Status {
    OOC_ASSIGN(Database database, Database::Open(made, Database::Access::kWrite, kWritePatience));
    OOC_TRY(Prepare(&database));
    return database.Execute("COMMIT");
  };
  if (make().ok() && link(made.c_str(), file.c_str()) != 0 && errno != EEXIST) {
    std::rename(made.c_str(), file.c_str());  // a file system without links
  }
  std::error_code error;
  std::filesystem::remove_all(folder, error);
}

// What fails in between is rolled back when the connection ends.
Status Write(const std::string& file, const std::string& machine, const PlanTable& found,
             const std::vector<PlanKey>& dropped) {
  if (access(file.c_str(), F_OK) != 0) MakeFile(file);
  OOC_ASSIGN(Database database, Database::Open(file, Database::Access::kWrite, kWritePatience));
  OOC_TRY(Prepare(&database));
  OOC_TRY(Delete(&database, machine, dropped));
  OOC_TRY(Insert(&database, machine, found));
  OOC_TRY(database.Execute(kPrune));
  return database.Execute("COMMIT");
}

// The file is somebody's who keeps something else in it, and is left to him: one that neither a
// library of this name has made nor lies where plans are kept when nobody says.
Status CheckIsOfPlans(const std::string& file) {
  std::error_code error;
  const Result<FileRead> read = ReadFile(file, kOwnerAt + kOurs.size());
  const bool link = IsForeignLink(file);
  if (read.ok() && !link) {
    if (!read->there || read->content.empty()) return {};
    if (std::filesystem::equivalent(file, DefaultPlanFile(), error)) return {};
    const std::string_view header = read->content;
    if (header.size() == kOwnerAt + kOurs.size() && header.starts_with(kMagic) &&
        header.ends_with(kOurs)) {
      return {};
    }
  }
  const std::string why = link         ? " (another user has made it a link)"
                          : !read.ok() ? " (" + read.status().message() + ")"
                                       : "";
  return Error(Code::kInvalidProblem,
               "%s is not a file of remembered plans%s and stays as it is; have OOCDNN_PLANS name "
               "another, or delete it",
               file.c_str(), why.c_str());
}

Status Remove(const std::string& file) {
  OOC_TRY(CheckIsOfPlans(file));
  if (access(file.c_str(), F_OK) != 0) return {};
  for (const char* const end : {"-wal", "-shm", ""}) {
    const std::string path = file + end;
    if (unlink(path.c_str()) == 0 || errno == ENOENT) continue;
    const int number = errno;
    return Error(Code::kFileError, "%s cannot be removed: %s", path.c_str(), std::strerror(number))
        .WithDetail(number);
  }
  return {};
}

// One at a time: who closes a file drops all locks that his process has on it, those of another
// thread's connection too.
ProcessLock turn;

}  // namespace

std::string DefaultPlanFile() {
  const std::string folder = CacheFolder();
  return folder.empty() ? "" : folder + "/plans.sqlite";
}

Result<PlanTable> ReadPlans(const std::string& file, const std::string& machine) {
  const std::lock_guard held(turn);
  PlanTable table;
  OOC_TRY(SqliteVersion().status());
  OOC_TRY(CheckIsOfPlans(file));
  if (access(file.c_str(), F_OK) != 0) return table;
  OOC_ASSIGN(Database database, Database::Open(file, Database::Access::kRead, kReadPatience));
  OOC_ASSIGN(const bool there, HasTable(&database));
  if (!there) return table;
  OOC_ASSIGN(Statement select, database.Prepare(kSelect));
  OOC_TRY(select.Bind(1, machine));
  for (;;) {
    OOC_ASSIGN(const bool more, select.Step());
    if (!more) return table;
    const PlanKey key{static_cast<uint64_t>(select.Integer(0)), select.Integer(1)};
    RememberedPlan plan{select.Text(2), select.Text(3), select.Integer(4), select.Real(5)};
    if (IsPlausible(plan)) table[key] = std::move(plan);
  }
}

Status WritePlans(const std::string& file, const std::string& machine, const PlanTable& found,
                  const std::vector<PlanKey>& dropped) {
  const std::lock_guard held(turn);
  OOC_TRY(SqliteVersion().status());
  OOC_TRY(CheckIsOfPlans(file));
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(file).parent_path(), error);
  Status status = Write(file, machine, found, dropped);
  if (!IsDamaged(status)) return status;
  OOC_TRY(Remove(file));
  return Write(file, machine, found, dropped);
}

Status RemovePlans(const std::string& file) {
  const std::lock_guard held(turn);
  return Remove(file);
}

}  // namespace oocdnn
