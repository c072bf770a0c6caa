// Loads with known truth for the system tests; each prints one JSON object.
//
//   load storm PER_S SECONDS [exec]   children started at a fixed rate, counted
//   load mixed THREADS SECONDS        threads that spin, sleep and yield; each
//                                     says its own schedstat and boot clock at
//                                     both ends of its window
//   load spin NAME SECONDS            one thread that never sleeps
//   load names SECONDS                threads with hostile names (hex)
//   load rename TIMES                 one thread that takes names n0, n1, ...
//   load pid PID NAME SECONDS         a child with exactly this pid that spins
#define _GNU_SOURCE
#include <linux/sched.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static uint64_t now_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return now.tv_sec * 1000000000ull + now.tv_nsec;
}
static uint64_t boot_ns(void) { return now_ns(CLOCK_BOOTTIME); }

static void spin_until(uint64_t end_ns) {
  while (boot_ns() < end_ns) {
    for (volatile int i = 0; i < 1000; ++i) continue;
  }
}

static void sleep_ns(uint64_t ns) {
  struct timespec time = {ns / 1000000000ull, ns % 1000000000ull};
  nanosleep(&time, NULL);
}

static int storm(double per_s, double seconds, int is_exec) {
  uint64_t start = boot_ns();
  uint64_t end = start + (uint64_t)(seconds * 1e9);
  long children = 0;
  prctl(PR_SET_NAME, "load-storm");
  while (boot_ns() < end) {
    if (children >= (boot_ns() - start) / 1e9 * per_s) {
      usleep(200);
      continue;
    }
    pid_t child = vfork();
    if (child == 0) {
      if (is_exec) execl("/bin/true", "true", (char*)NULL);
      _exit(0);
    }
    waitpid(child, NULL, 0);
    ++children;
  }
  printf("{\"children\": %ld, \"begin_ns\": %lu, \"end_ns\": %lu}\n", children, start, boot_ns());
  return 0;
}

struct window {
  int tid;
  uint64_t begin_ns, end_ns, run_ns, wait_ns;
};
static struct window windows[256];
static double mixed_seconds;

static void read_schedstat(uint64_t* run, uint64_t* wait) {
  char path[64];
  snprintf(path, sizeof(path), "/proc/self/task/%ld/schedstat", syscall(SYS_gettid));
  sched_yield();  // Brings the counters up to now.
  FILE* file = fopen(path, "r");
  if (fscanf(file, "%lu %lu", run, wait) != 2) exit(1);
  fclose(file);
}

static void* mixed_thread(void* argument) {
  long index = (long)argument;
  struct window* window = &windows[index];
  char name[16];
  uint64_t run, wait;
  snprintf(name, sizeof(name), "mixed-%ld", index);
  prctl(PR_SET_NAME, name);
  window->tid = syscall(SYS_gettid);
  read_schedstat(&run, &wait);
  window->begin_ns = boot_ns();
  uint64_t end = window->begin_ns + (uint64_t)(mixed_seconds * 1e9);
  while (boot_ns() < end) {
    spin_until(boot_ns() + 200000 * (index % 5 + 1));
    if (index % 4 == 3)
      sched_yield();
    else
      sleep_ns(1000000 * (index % 7 + 1));
  }
  read_schedstat(&window->run_ns, &window->wait_ns);
  window->end_ns = boot_ns();
  window->run_ns -= run;
  window->wait_ns -= wait;
  return NULL;
}

static int mixed(int count, double seconds) {
  pthread_t threads[256];
  mixed_seconds = seconds;
  for (long i = 0; i < count; ++i) pthread_create(&threads[i], NULL, mixed_thread, (void*)i);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  printf("{\"pid\": %d, \"threads\": [", getpid());
  for (int i = 0; i < count; ++i) {
    struct window* w = &windows[i];
    printf("%s{\"tid\": %d, \"begin_ns\": %lu, \"end_ns\": %lu, \"run_ns\": %lu, \"wait_ns\": %lu}",
           i ? ", " : "", w->tid, w->begin_ns, w->end_ns, w->run_ns, w->wait_ns);
  }
  printf("]}\n");
  return 0;
}

static const char* const hostile[] = {"ev\xffil",
                                      "a\"b'c",
                                      "x;y|z&<>",
                                      "new\nline",
                                      "tab\there",
                                      "(a) R 1 2",
                                      ")",
                                      "",
                                      "\x1b[31mred",
                                      "%s%n%d",
                                      "..%2f..",
                                      "'); DROP--",
                                      "{\"j\":1}",
                                      "exactly15chars!",
                                      "16characterslong",
                                      "-rf",
                                      "swapper/0",
                                      "\xed\xa0\x80sur",
                                      "\xc0\x80ovl",
                                      "\xe4\xbd\xa0\xe5",
                                      "\\x00\\u0000"};
static double names_seconds;
static int name_tids[32];

static void* names_thread(void* argument) {
  long index = (long)argument;
  prctl(PR_SET_NAME, hostile[index]);
  name_tids[index] = syscall(SYS_gettid);
  uint64_t end = boot_ns() + (uint64_t)(names_seconds * 1e9);
  while (boot_ns() < end) sleep_ns(10000000);
  return NULL;
}

static int names(double seconds) {
  int count = sizeof(hostile) / sizeof(hostile[0]);
  pthread_t threads[32];
  names_seconds = seconds;
  for (long i = 0; i < count; ++i) pthread_create(&threads[i], NULL, names_thread, (void*)i);
  for (int i = 0; i < count; ++i) pthread_join(threads[i], NULL);
  printf("{\"names\": {");
  for (int i = 0; i < count; ++i) {
    printf("%s\"%d\": \"", i ? ", " : "", name_tids[i]);
    for (size_t k = 0; k < strlen(hostile[i]) && k < 15; ++k) {
      printf("%02x", (unsigned char)hostile[i][k]);
    }
    printf("\"");
  }
  printf("}}\n");
  return 0;
}

static int rename_often(int times) {
  printf("{\"tid\": %d, \"renames\": [", getpid());
  for (int i = 0; i < times; ++i) {
    char name[16];
    snprintf(name, sizeof(name), "n%d", i);
    uint64_t before = boot_ns();
    prctl(PR_SET_NAME, name);
    printf("%s[%lu, %lu, \"%s\"]", i ? ", " : "", before, boot_ns(), name);
    for (int k = 0; k < 5; ++k) sleep_ns(1000000);
  }
  printf("]}\n");
  return 0;
}

static int with_pid(int pid, const char* name, double seconds) {
  pid_t wanted = pid;
  struct clone_args arguments = {
      .exit_signal = SIGCHLD, .set_tid = (uint64_t)(uintptr_t)&wanted, .set_tid_size = 1};
  uint64_t begin = boot_ns();
  long child = syscall(SYS_clone3, &arguments, sizeof(arguments));
  if (child < 0) {
    perror("clone3");
    return 1;
  }
  if (child == 0) {
    prctl(PR_SET_NAME, name);
    spin_until(boot_ns() + (uint64_t)(seconds * 1e9));
    _exit(0);
  }
  waitpid(child, NULL, 0);
  printf("{\"pid\": %d, \"begin_ns\": %lu, \"end_ns\": %lu}\n", pid, begin, boot_ns());
  return 0;
}

static int spin(const char* name, double seconds) {
  prctl(PR_SET_NAME, name);
  uint64_t begin = boot_ns();
  spin_until(begin + (uint64_t)(seconds * 1e9));
  printf("{\"tid\": %d, \"begin_ns\": %lu, \"end_ns\": %lu}\n", getpid(), begin, boot_ns());
  return 0;
}

int main(int count, char** words) {
  const char* mode = count > 1 ? words[1] : "";
  if (!strcmp(mode, "storm") && count >= 4) {
    return storm(atof(words[2]), atof(words[3]), count > 4);
  }
  if (!strcmp(mode, "mixed") && count == 4) return mixed(atoi(words[2]), atof(words[3]));
  if (!strcmp(mode, "spin") && count == 4) return spin(words[2], atof(words[3]));
  if (!strcmp(mode, "names") && count == 3) return names(atof(words[2]));
  if (!strcmp(mode, "rename") && count == 3) return rename_often(atoi(words[2]));
  if (!strcmp(mode, "pid") && count == 5) return with_pid(atoi(words[2]), words[3], atof(words[4]));
  fprintf(stderr, "usage: load storm|mixed|spin|names|rename|pid ... (see the source's head)\n");
  return 2;
}
