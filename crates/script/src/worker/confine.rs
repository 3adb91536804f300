//! Confinement of a worker process, before it reads its first message: descriptors, privileges, files, system calls.
//!
//! After that it may read and write open descriptors, use memory, read the time and random bytes, and exit. All other
//! system calls are refused, and calls that only an attacker would make (a socket, a process, a program, the memory
//! of another process) end it. Kernels without Landlock, and machines without system-call filters, use the remaining
//! measures: the worker reports it and the server logs it.

use std::io;

/// Maximum address space of the process: a bound for engine faults; the engine's own limits are far lower.
const ADDRESS_SPACE_BYTES: u64 = 4 << 30;
const PRIORITY: i32 = 5;

/// Measures in force, in addition to the limits of every Unix.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Confinement {
    /// System calls are filtered.
    pub calls: bool,
    /// Files and ports are refused by the kernel's own rules (Landlock).
    pub files: bool,
}

impl Confinement {
    pub(crate) fn code(self) -> u8 {
        u8::from(self.calls) | u8::from(self.files) << 1
    }

    pub(crate) fn from_code(code: u8) -> Option<Confinement> {
        (code < 4).then_some(Confinement { calls: code & 1 != 0, files: code & 2 != 0 })
    }
}

/// Confines this process permanently. It must have one thread.
#[cfg(unix)]
pub fn confine() -> io::Result<Confinement> {
    use rustix::process::{Resource, Rlimit, getpriority_process, setpriority_process, setrlimit};
    let at_most = |most| Rlimit { current: Some(most), maximum: Some(most) };
    setrlimit(Resource::Core, at_most(0))?;
    setrlimit(Resource::Fsize, at_most(0))?;
    setrlimit(Resource::As, at_most(ADDRESS_SPACE_BYTES))?;
    // Of a server whose own priority is lower still, only root may raise it.
    setpriority_process(None, PRIORITY.max(getpriority_process(None)?))?;
    #[cfg(target_os = "linux")]
    {
        use rustix::process::{Signal, set_parent_process_death_signal};
        // Also ends the process when it is stuck and does not see the end of its input.
        set_parent_process_death_signal(Some(Signal::KILL))?;
        rustix::thread::set_no_new_privs(true)?;
    }
    let files = linux::restrict_files();
    // Open descriptors stay open. After the rules for files, which need a descriptor themselves.
    setrlimit(Resource::Nofile, at_most(0))?;
    let calls = linux::filter_calls();
    Ok(Confinement { calls, files })
}

#[cfg(not(unix))]
pub fn confine() -> io::Result<Confinement> {
    Ok(Confinement::default())
}

#[cfg(all(unix, not(target_os = "linux")))]
mod linux {
    pub fn restrict_files() -> bool {
        false
    }

    pub fn filter_calls() -> bool {
        false
    }
}

#[cfg(target_os = "linux")]
mod linux {
    use std::collections::BTreeMap;

    use landlock::{
        ABI, Access, AccessFs, AccessNet, RestrictionStatus, Ruleset, RulesetAttr, RulesetError,
        RulesetStatus,
    };
    use seccompiler::{
        BackendError, BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition,
        SeccompFilter, SeccompRule, TargetArch,
    };

    /// The system calls of the engine, the allocator and the pipe. Other calls fail with `EPERM`: the C library
    /// sometimes opens files (time zones, messages) and works without them.
    const ALLOWED: &[libc::c_long] = &[
        libc::SYS_read,
        libc::SYS_readv,
        libc::SYS_write,
        libc::SYS_writev,
        libc::SYS_close,
        libc::SYS_brk,
        libc::SYS_munmap,
        libc::SYS_mremap,
        libc::SYS_madvise,
        libc::SYS_futex,
        libc::SYS_clock_gettime,
        libc::SYS_clock_nanosleep,
        libc::SYS_nanosleep,
        libc::SYS_gettimeofday,
        libc::SYS_getrandom,
        libc::SYS_getpid,
        libc::SYS_gettid,
        libc::SYS_sched_yield,
        libc::SYS_sigaltstack,
        libc::SYS_rt_sigaction,
        libc::SYS_rt_sigprocmask,
        libc::SYS_rt_sigreturn,
        libc::SYS_restart_syscall,
        libc::SYS_exit,
        libc::SYS_exit_group,
    ];

    /// System calls that a worker never makes.
    const FATAL: &[libc::c_long] = &[
        #[cfg(target_arch = "x86_64")]
        libc::SYS_fork,
        #[cfg(target_arch = "x86_64")]
        libc::SYS_vfork,
        libc::SYS_clone,
        libc::SYS_clone3,
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_socket,
        libc::SYS_socketpair,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_ptrace,
        libc::SYS_process_vm_readv,
        libc::SYS_process_vm_writev,
        libc::SYS_pidfd_open,
        libc::SYS_bpf,
        libc::SYS_io_uring_setup,
        libc::SYS_userfaultfd,
        libc::SYS_mount,
        libc::SYS_unshare,
        libc::SYS_setns,
    ];

    /// No file, directory or port: the rules allow nothing.
    pub fn restrict_files() -> bool {
        matches!(rules(), Ok(status) if status.ruleset != RulesetStatus::NotEnforced)
    }

    fn rules() -> Result<RestrictionStatus, RulesetError> {
        let rules = Ruleset::default().handle_access(AccessFs::from_all(ABI::V5))?;
        rules.handle_access(AccessNet::from_all(ABI::V5))?.create()?.restrict_self()
    }

    /// Of two filters, the stricter result counts.
    pub fn filter_calls() -> bool {
        let apply = |program: &BpfProgram| seccompiler::apply_filter(program).is_ok();
        matches!((fatal(), allowed()), (Ok(fatal), Ok(allowed)) if apply(&fatal) && apply(&allowed))
    }

    fn fatal() -> Result<BpfProgram, BackendError> {
        let rules = FATAL.iter().map(|&call| (call, Vec::new())).collect();
        program(rules, SeccompAction::Allow, SeccompAction::KillProcess)
    }

    fn allowed() -> Result<BpfProgram, BackendError> {
        let mut rules: BTreeMap<i64, Vec<SeccompRule>> =
            ALLOWED.iter().map(|&call| (call, Vec::new())).collect();
        // Memory is never executable.
        let is_data = || condition(2, SeccompCmpOp::MaskedEq(libc::PROT_EXEC as u64), 0);
        rules.insert(libc::SYS_mmap, vec![SeccompRule::new(vec![is_data()?])?]);
        rules.insert(libc::SYS_mprotect, vec![SeccompRule::new(vec![is_data()?])?]);
        // Its own CPU time limit is set for every run.
        let own = condition(0, SeccompCmpOp::Eq, 0)?;
        // Its type differs between C libraries.
        let processor_time = condition(1, SeccompCmpOp::Eq, libc::RLIMIT_CPU as u64)?;
        let limit = SeccompRule::new(vec![own, processor_time])?;
        rules.insert(libc::SYS_prlimit64, vec![limit]);
        program(rules, SeccompAction::Errno(libc::EPERM as u32), SeccompAction::Allow)
    }

    fn condition(argument: u8, operator: SeccompCmpOp, value: u64) -> Result<SeccompCondition, BackendError> {
        SeccompCondition::new(argument, SeccompCmpArgLen::Dword, operator, value)
    }

    fn program(
        rules: BTreeMap<i64, Vec<SeccompRule>>,
        otherwise: SeccompAction,
        matched: SeccompAction,
    ) -> Result<BpfProgram, BackendError> {
        let architecture: TargetArch = std::env::consts::ARCH.try_into()?;
        SeccompFilter::new(rules, otherwise, matched, architecture)?.try_into()
    }
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use std::fs::File;
    use std::io::ErrorKind;

    /// The rules hold for the thread that sets them, so another one can be confined. The filter of system calls and the limit of
    /// open files refuse the same in a worker; here only Landlock does.
    #[test]
    fn landlock_alone_refuses_files() {
        const PATH: &str = "/proc/self/status";
        let confined = std::thread::spawn(|| {
            rustix::thread::set_no_new_privs(true).expect("a right of every process");
            let before = File::open(PATH).is_ok();
            let is_set = super::linux::restrict_files();
            (before, is_set, File::open(PATH).err().map(|error| error.kind()))
        });
        let expected = match has_landlock() {
            true => (true, true, Some(ErrorKind::PermissionDenied)),
            false => (true, false, None),
        };
        assert_eq!(confined.join().expect("no panic"), expected);
    }

    /// Whether this kernel has it, as a set of rules about devices alone finds it.
    fn has_landlock() -> bool {
        use landlock::{AccessFs, LandlockStatus, Ruleset, RulesetAttr};
        let rules = || Ruleset::default().handle_access(AccessFs::MakeChar)?.create()?.restrict_self();
        let status = std::thread::spawn(rules).join().expect("no panic").expect("answers");
        matches!(status.landlock, LandlockStatus::Available { .. })
    }
}
