/* SIGBUS in our own loops over mapped files, as a result instead of the end of the process (D-34).
 *
 * A page of a mapping cannot always be had: the disk fails to read it, another program cut the file, a
 * full copy-on-write disk has no room for a changed page. The kernel says so by SIGBUS. While this thread
 * runs inside rs_guarded the handler jumps back to it; every other SIGBUS goes to the handler
 * before ours. Included by sigbus_guard.pyx alone: one handler a process. */
#ifndef RS_GUARD_H
#define RS_GUARD_H

#include <setjmp.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <string.h>

/* What glibc would make on first use could be made inside the handler; musl makes it when it loads. */
#ifdef __GLIBC__
#define RS_GUARD_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
#else
#define RS_GUARD_THREAD static _Thread_local
#endif

typedef void (*rs_guarded_work)(void *given);

typedef struct {
    sigjmp_buf jump;
} rs_guard;

/* The innermost guard of this thread, NULL outside. It decides, not the address: what a guard runs
 * touches mapped files and memory that is sound. */
RS_GUARD_THREAD rs_guard *volatile rs_guard_active;
RS_GUARD_THREAD const void *rs_guard_address;
/* How often the handler has called others without a return: they may have kept us as their previous one. */
RS_GUARD_THREAD int rs_guard_depth;

static atomic_flag rs_guard_changing = ATOMIC_FLAG_INIT;
/* Handlers before ours: when we took the signal last, in the slot that `chosen` names, and at the very first time. */
static struct sigaction rs_guard_before[2], rs_guard_first;
static atomic_int rs_guard_chosen = -1;

static void rs_guard_default(int number, bool sent)
{
    struct sigaction plain;
    memset(&plain, 0, sizeof plain);
    plain.sa_handler = SIG_DFL;
    sigaction(number, &plain, NULL);
    if (sent)
        raise(number);
    /* Else the fault recurs on return, and the core shows where. */
}

/* To the handler before ours; where it has called us again, to the first of all, and then to the default. */
static void rs_guard_pass(int number, siginfo_t *info, void *context)
{
    bool sent = info->si_code <= 0;
    struct sigaction before;
    if (rs_guard_depth == 0)
        before = rs_guard_before[atomic_load(&rs_guard_chosen)];
    else if (rs_guard_depth == 1)
        before = rs_guard_first;
    else
        before.sa_handler = SIG_DFL, before.sa_flags = 0;
    rs_guard_depth++;
    if (before.sa_flags & SA_SIGINFO)
        before.sa_sigaction(number, info, context);
    else if (before.sa_handler == SIG_DFL || (before.sa_handler == SIG_IGN && !sent))
        rs_guard_default(number, sent);
    else if (before.sa_handler != SIG_IGN)
        before.sa_handler(number);
    rs_guard_depth--;
}

static void rs_guard_on_signal(int number, siginfo_t *info, void *context)
{
    rs_guard *active = rs_guard_active;
    if (active == NULL) {
        rs_guard_pass(number, info, context);
        return;
    }
    /* Sent by a program: another handler met the fault first and passed it on by raise(). It has given
     * the signal back to us, so the fault comes here by itself when both have returned. */
    if (info->si_code <= 0)
        return;
    rs_guard_address = info->si_addr;
    siglongjmp(active->jump, 1);
}

static bool rs_guard_ours(const struct sigaction *found)
{
    return (found->sa_flags & SA_SIGINFO) && found->sa_sigaction == rs_guard_on_signal;
}

static bool rs_guard_owns(void)
{
    struct sigaction found;
    sigaction(SIGBUS, NULL, &found);
    return rs_guard_ours(&found);
}

/* Takes the signal unless it is ours: another library may have taken it since the last time. */
static void rs_guard_own(void)
{
    struct sigaction found, ours;
    if (rs_guard_owns())
        return;
    while (atomic_flag_test_and_set(&rs_guard_changing)) {
    }
    sigaction(SIGBUS, NULL, &found);
    if (!rs_guard_ours(&found)) {
        int chosen = atomic_load(&rs_guard_chosen);
        if (chosen < 0)
            rs_guard_first = found;
        rs_guard_before[chosen != 1] = found;
        atomic_store(&rs_guard_chosen, chosen != 1);
        memset(&ours, 0, sizeof ours);
        ours.sa_sigaction = rs_guard_on_signal;
        /* On the thread's signal stack where it has one; the signal is never blocked, so that the jump
         * out of the handler leaves nothing to undo. */
        ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
        sigaction(SIGBUS, &ours, NULL);
    }
    atomic_flag_clear(&rs_guard_changing);
}

/* Runs work(given). False: a page could not be had, and work was left where it stood. It takes no lock,
 * holds no memory and touches no Python object, because nothing is undone. */
static bool rs_guard_run(rs_guarded_work work, void *given)
{
    rs_guard guard;
    rs_guard *outer = rs_guard_active;
    if (sigsetjmp(guard.jump, 0)) {
        rs_guard_active = outer;
        return false;
    }
    rs_guard_depth = 0;
    rs_guard_active = &guard;
    work(given);
    rs_guard_active = outer;
    return true;
}

typedef struct {
    void *to;
    const void *from;
    size_t size;
} rs_guarded_copy_call;

static void rs_guarded_copy_work(void *given)
{
    const rs_guarded_copy_call *call = given;
    memcpy(call->to, call->from, call->size);
}

/* memcpy under guard; either side may be a mapping, and NULL for no bytes. */
static bool rs_guard_copy(void *to, const void *from, size_t size)
{
    if (size == 0)
        return true;
    rs_guarded_copy_call call = {to, from, size};
    return rs_guard_run(rs_guarded_copy_work, &call);
}

#endif
