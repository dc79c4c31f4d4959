#include "testing/child.hpp"

#include <sys/wait.h>
#include <unistd.h>

#include "testing/conformance_rig.hpp"

namespace oocdnn::testing {

Status InChild(const std::function<Status()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    alarm(60);
    _exit(work().ok() ? 0 : 1);
  }
  int state = 0;
  OOC_EXPECT(child > 0 && waitpid(child, &state, 0) == child, "there is no child to wait for");
  OOC_EXPECT(WIFEXITED(state), "the child was killed by signal %d", WTERMSIG(state));
  OOC_EXPECT(WEXITSTATUS(state) == 0, "the child failed");
  return {};
}

}  // namespace oocdnn::testing
