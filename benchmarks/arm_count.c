// A plugin of qemu: counts the instructions that a program executes, and prints the number at its
// end. Debian packages no header of qemu's plugins, so what is used of it is declared here.
#include <inttypes.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

struct qemu_plugin_tb;
enum { INLINE_ADD_U64 };
void qemu_plugin_register_vcpu_tb_trans_cb(uint64_t id, void (*translated)(uint64_t id, struct qemu_plugin_tb *));
void qemu_plugin_register_vcpu_tb_exec_inline(struct qemu_plugin_tb *, int op, void *counter, uint64_t by);
void qemu_plugin_register_atexit_cb(uint64_t id, void (*ended)(uint64_t id, void *), void *);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *);
void qemu_plugin_outs(const char *text);

int qemu_plugin_version = 1;
static uint64_t executed;

static void translated(uint64_t id, struct qemu_plugin_tb *block) {
  (void)id;
  qemu_plugin_register_vcpu_tb_exec_inline(block, INLINE_ADD_U64, &executed, qemu_plugin_tb_n_insns(block));
}

static void ended(uint64_t id, void *unused) {
  (void)id, (void)unused;
  char text[64];
  snprintf(text, sizeof(text), "executed %" PRIu64 "\n", executed);
  qemu_plugin_outs(text);
}

int qemu_plugin_install(uint64_t id, const void *info, int argc, char **argv) {
  (void)info, (void)argc, (void)argv;
  qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
  qemu_plugin_register_atexit_cb(id, ended, NULL);
  return 0;
}
