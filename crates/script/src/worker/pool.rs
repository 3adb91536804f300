//! The pool of worker processes in the server.
//!
//! Each worker serves one run at a time; idle workers wait for the next. One thread starts them, and kills those that
//! exceed their deadline or are idle too long. It is one thread because a worker ends with the thread that started
//! it.
//!
//! Invariants:
//! 1. The server continues, whatever a worker does or sends; only the run of a dead worker fails.
//! 2. The thread does not end before the pool does. After a panic it goes on; workers that it was about to start fail.

use std::collections::{HashMap, HashSet};
use std::io::{self, BufReader};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, ExitStatus, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use parking_lot::{Condvar, Mutex, MutexGuard};

use crate::caller::WatchedCaller;
use crate::functions::{CallResult, FunctionCall};
use crate::host::answers;
use crate::worker::confine::Confinement;
use crate::worker::remote::FunctionText;
use crate::worker::wire::{Frame, FromWorker, from_worker, malformed, read_frame};
use crate::{Caller, Failure, Host, Limits, Outcome, ScriptError, ScriptRun};

/// Extra time of a worker beyond its own limit: for built-ins of the engine that do not check the time, and for a
/// machine under load.
pub(crate) const GRACE: Duration = Duration::from_secs(1);
/// Between a panic of the thread that manages workers and its next attempt.
const PANIC_PAUSE: Duration = Duration::from_millis(100);
/// As many as can run at once: with fewer, workers would be ended and started all the time.
const IDLE_PER_CORE: usize = 4;
/// Maximum idle time of a worker.
const IDLE_TIME_MAX: Duration = Duration::from_secs(60);
/// Maximum runs of a worker, to bound memory leaks.
const RUN_COUNT_MAX: u32 = 100_000;
/// Maximum of remembered script versions that were sent to a worker.
const KNOWN_COUNT_MAX: usize = 10_000;

/// The program of a worker.
#[derive(Clone, Debug)]
pub(crate) struct Program {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
}

pub(crate) struct Workers {
    shared: Arc<Shared>,
    manager: Option<JoinHandle<()>>,
    idle_max: usize,
}

struct Shared {
    state: Mutex<PoolState>,
    changed: Condvar,
    program: Program,
    /// The confinement of workers was logged.
    is_logged: AtomicBool,
    /// Panics of the thread that manages workers.
    panics: AtomicU64,
    #[cfg(test)]
    panics_wanted: AtomicU64,
    /// How often the thread that manages workers has looked at them.
    #[cfg(test)]
    checks: AtomicU64,
}

#[derive(Default)]
struct PoolState {
    idle: Vec<(Worker, Instant)>,
    wanted: Vec<Sender<io::Result<Worker>>>,
    running: HashMap<u64, WatchedWorker>,
    /// When the thread that manages workers looks at them next; `None`: not before it is notified.
    next_check: Option<Instant>,
    last_number: u64,
    /// Running functions are overdue, whatever their time limit.
    stops_functions: bool,
    closed: bool,
}

struct WatchedWorker {
    deadline: Instant,
    caller: WatchedCaller,
    is_function: bool,
    process: Arc<Mutex<Child>>,
}

/// When to kill a worker: at its deadline, or when its caller has disconnected.
pub(crate) struct KillWhen {
    pub(crate) deadline: Instant,
    /// It runs functions, not a procedure or trigger.
    pub(crate) is_function: bool,
    pub(crate) caller: Caller,
}

pub(crate) struct Worker {
    process: Arc<Mutex<Child>>,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    known: HashSet<String>,
    runs: u32,
    /// It was asked to exit.
    is_ended: bool,
    /// Its confinement, which it reports once when it is ready.
    confinement: Option<Confinement>,
    is_ready: bool,
}

impl Workers {
    pub(crate) fn start(program: Program) -> Workers {
        let shared = Arc::new(Shared {
            state: Mutex::default(),
            changed: Condvar::new(),
            program,
            is_logged: AtomicBool::new(false),
            panics: AtomicU64::new(0),
            #[cfg(test)]
            panics_wanted: AtomicU64::new(0),
            #[cfg(test)]
            checks: AtomicU64::new(0),
        });
        let kept = Arc::clone(&shared);
        let manager =
            std::thread::Builder::new().name("script-workers".to_owned()).spawn(move || kept.manage_always());
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        Workers { shared, manager: manager.ok(), idle_max: cores.max(2) * IDLE_PER_CORE }
    }

    pub(crate) fn run(
        &self,
        run: &ScriptRun<'_>,
        limits: &Limits,
        host: &mut dyn Host,
    ) -> Result<Outcome, Failure> {
        let failed = |error| Failure { error, log: None };
        let mut worker = self.take().map_err(failed)?;
        let deadline = Instant::now() + limits.time + GRACE;
        let watch = KillWhen { deadline, is_function: false, caller: host.caller() };
        let result = self.run_watched(&mut worker, watch, |worker| worker.run(run, limits, host));
        let result = result.map_err(failed)?;
        if result.as_ref().err().is_none_or(|failure| failure.error.leaves_runtime_usable()) {
            self.return_to_pool(worker);
        }
        result
    }

    /// Runs a worker until its deadline; then it is killed.
    pub(crate) fn run_watched<T>(
        &self,
        worker: &mut Worker,
        watch: KillWhen,
        work: impl FnOnce(&mut Worker) -> io::Result<T>,
    ) -> Result<T, ScriptError> {
        let number = self.shared.watch(worker, watch);
        let result = work(worker);
        let overran = !self.shared.stop_watching(number);
        worker.is_ended = overran;
        if let Some(confinement) = worker.confinement.take() {
            self.shared.log_confinement(confinement);
        }
        match result {
            Ok(result) => Ok(result),
            Err(_) if overran => Err(ScriptError::TimedOut),
            Err(error) => Err(worker.unexpected_exit_error(&error)),
        }
    }

    pub(crate) fn panics(&self) -> u64 {
        self.shared.panics.load(Ordering::Relaxed)
    }

    pub(crate) fn stop_functions(&self) {
        let mut state = self.shared.state.lock();
        state.stops_functions = true;
        let now = Instant::now();
        state
            .running
            .values_mut()
            .filter(|watched| watched.is_function)
            .for_each(|watched| watched.deadline = now);
        drop(state);
        self.shared.changed.notify_one();
    }

    pub(crate) fn take(&self) -> Result<Worker, ScriptError> {
        let mut state = self.shared.state.lock();
        while let Some((worker, _)) = state.idle.pop() {
            if worker.is_alive() {
                return Ok(worker);
            }
        }
        if self.manager.is_none() {
            return Err(engine_failed("cannot start", &"there is no thread to start it"));
        }
        let (sender, receiver) = channel();
        state.wanted.push(sender);
        drop(state);
        self.shared.changed.notify_one();
        let not_started = || Err(io::Error::other("the pool of workers is stopping or failed"));
        let started = receiver.recv().unwrap_or_else(|_| not_started());
        started.map_err(|error| engine_failed("cannot start", &error))
    }

    /// Kills the worker if it is dead or not needed.
    pub(crate) fn return_to_pool(&self, worker: Worker) {
        let mut state = self.shared.state.lock();
        let is_fit = worker.runs < RUN_COUNT_MAX && !worker.is_ended;
        if is_fit && state.idle.len() < self.idle_max && !state.closed {
            state.idle.push((worker, Instant::now()));
        } else {
            drop(state);
            drop(worker);
        }
    }
}

impl Drop for Workers {
    fn drop(&mut self) {
        self.shared.state.lock().closed = true;
        self.shared.changed.notify_one();
        if let Some(manager) = self.manager.take() {
            // Its panics are caught.
            drop(manager.join());
        }
    }
}

impl Shared {
    /// Logs the confinement once: all workers run on the same machine.
    fn log_confinement(&self, confinement: Confinement) {
        if self.is_logged.swap(true, Ordering::Relaxed) {
            return;
        }
        let Confinement { calls, files } = confinement;
        if calls && files {
            tracing::info!(
                "script workers cannot open files or sockets, and their system calls are filtered"
            );
        } else {
            tracing::warn!(
                system_calls_filtered = calls,
                landlock = files,
                "this machine confines script workers by less than it could"
            );
        }
    }

    fn watch(&self, worker: &Worker, watch: KillWhen) -> u64 {
        let KillWhen { deadline, is_function, caller } = watch;
        let (now, process) = (Instant::now(), Arc::clone(&worker.process));
        let mut state = self.state.lock();
        let deadline = if is_function && state.stops_functions { now } else { deadline };
        let watched =
            WatchedWorker { deadline, caller: WatchedCaller::new(caller, now), is_function, process };
        state.last_number += 1;
        let number = state.last_number;
        let is_late = state.next_check.is_none_or(|next_check| next_check > watched.next());
        state.running.insert(number, watched);
        drop(state);
        if is_late {
            self.changed.notify_one();
        }
        number
    }

    /// Whether it was still watched: otherwise it exceeded its deadline and was killed.
    fn stop_watching(&self, number: u64) -> bool {
        self.state.lock().running.remove(&number).is_some()
    }

    /// Goes on after a panic: with this thread, all workers that it started would end.
    fn manage_always(&self) {
        while catch_unwind(AssertUnwindSafe(|| self.manage_workers())).is_err() {
            self.panics.fetch_add(1, Ordering::Relaxed);
            tracing::error!("the thread that starts and ends script workers panicked and goes on");
            std::thread::sleep(PANIC_PAUSE);
        }
    }

    /// The thread that starts and ends workers.
    fn manage_workers(&self) {
        let mut state = self.state.lock();
        while !state.closed {
            #[cfg(test)]
            self.checks.fetch_add(1, Ordering::Relaxed);
            let wanted = std::mem::take(&mut state.wanted);
            let (overdue, forgotten, next) = state.due(Instant::now());
            if !wanted.is_empty() || !overdue.is_empty() || !forgotten.is_empty() {
                MutexGuard::unlocked(&mut state, || {
                    overdue.iter().for_each(|process| kill(process));
                    drop(forgotten);
                    self.panic_if_wanted();
                    for sender in wanted {
                        // The requester waits for the answer.
                        drop(sender.send(Worker::start(&self.program)));
                    }
                });
                continue;
            }
            state.next_check = next;
            match next {
                Some(next) => drop(self.changed.wait_until(&mut state, next)),
                None => self.changed.wait(&mut state),
            }
        }
        state.idle.clear();
        state.wanted.clear();
        state.running.values().for_each(|watched| kill(&watched.process));
    }

    #[cfg(test)]
    fn panic_if_wanted(&self) {
        let wanted =
            self.panics_wanted.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1));
        assert!(wanted.is_err(), "a test wants a panic");
    }

    #[cfg(not(test))]
    fn panic_if_wanted(&self) {}
}

impl PoolState {
    /// The workers that must end now, and the time of the next check.
    fn due(&mut self, now: Instant) -> (Vec<Arc<Mutex<Child>>>, Vec<Worker>, Option<Instant>) {
        let overdue: Vec<u64> = self
            .running
            .iter_mut()
            .filter_map(|(number, watched)| watched.is_overdue(now).then_some(*number))
            .collect();
        let overdue =
            overdue.iter().filter_map(|number| self.running.remove(number)).map(|watched| watched.process);
        let overdue = overdue.collect();
        // The oldest are at the front.
        let count =
            self.idle.iter().take_while(|(_, since)| now.duration_since(*since) >= IDLE_TIME_MAX).count();
        let forgotten = self.idle.drain(..count).map(|(worker, _)| worker).collect();
        let deadlines = self.running.values().map(WatchedWorker::next);
        let next = deadlines.chain(self.idle.first().map(|(_, since)| *since + IDLE_TIME_MAX)).min();
        (overdue, forgotten, next)
    }
}

impl WatchedWorker {
    /// The time of the next check.
    fn next(&self) -> Instant {
        self.caller.next_check().map_or(self.deadline, |next_check| next_check.min(self.deadline))
    }

    fn is_overdue(&mut self, now: Instant) -> bool {
        self.deadline <= now || self.caller.is_gone(now)
    }
}

impl Worker {
    /// With nothing of this process: no environment, no files, not in our process group.
    fn start(program: &Program) -> io::Result<Worker> {
        let mut command = Command::new(&program.path);
        command.args(&program.arguments).env_clear().current_dir("/");
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut process = command.spawn()?;
        let (Some(input), Some(output)) = (process.stdin.take(), process.stdout.take()) else {
            return Err(malformed());
        };
        let process = Arc::new(Mutex::new(process));
        Ok(Worker {
            process,
            input,
            output: BufReader::new(output),
            known: HashSet::new(),
            runs: 0,
            is_ended: false,
            confinement: None,
            is_ready: false,
        })
    }

    fn is_alive(&self) -> bool {
        matches!(self.process.lock().try_wait(), Ok(None))
    }

    /// The outer error is for the process or its pipes.
    fn run(
        &mut self,
        run: &ScriptRun<'_>,
        limits: &Limits,
        host: &mut dyn Host,
    ) -> io::Result<Result<Outcome, Failure>> {
        self.runs += 1;
        let is_known = self.known.contains(run.script.version);
        Frame::run(limits, run, !is_known).send(&mut self.input)?;
        loop {
            match self.receive()? {
                FromWorker::NeedsText => Frame::script_text(run.script.body).send(&mut self.input)?,
                FromWorker::Operations(operations) => {
                    Frame::answers(&answers(operations, host)).send(&mut self.input)?;
                }
                FromWorker::Done(outcome) => {
                    self.add_loaded_version(run.script.version);
                    return Ok(Ok(outcome));
                }
                FromWorker::Failed(failure) => return Ok(Err(failure)),
                FromWorker::Values(_) | FromWorker::Ready(_) => return Err(malformed()),
            }
        }
    }

    /// The inner error is for a function that cannot be loaded. `load`: the functions, if they are not loaded yet.
    pub(crate) fn call(
        &mut self,
        load: Option<(&Limits, &[FunctionText])>,
        calls: &[FunctionCall],
    ) -> io::Result<Result<Vec<CallResult>, ScriptError>> {
        self.runs += u32::from(load.is_some());
        let mut all_texts = false;
        loop {
            let known = &self.known;
            let with_text = |function: &FunctionText| all_texts || !known.contains(function.script().version);
            let loaded = load.map(|(limits, functions)| {
                (limits, functions.iter().map(|function| (function.script(), with_text(function))))
            });
            Frame::calls(loaded, calls).send(&mut self.input)?;
            match self.receive()? {
                FromWorker::Values(values) => {
                    let functions = load.map_or(&[][..], |(_, functions)| functions);
                    functions.iter().for_each(|function| self.add_loaded_version(function.script().version));
                    return Ok(Ok(values));
                }
                FromWorker::Failed(failure) => return Ok(Err(failure.error)),
                FromWorker::NeedsText if !all_texts => all_texts = true,
                _ => return Err(malformed()),
            }
        }
    }

    fn receive(&mut self) -> io::Result<FromWorker> {
        loop {
            let frame = read_frame(&mut self.output)?.ok_or(io::ErrorKind::UnexpectedEof)?;
            match from_worker(&frame).ok_or_else(malformed)? {
                FromWorker::Ready(confinement) if !self.is_ready => {
                    (self.is_ready, self.confinement) = (true, Some(confinement));
                }
                message => return Ok(message),
            }
        }
    }

    /// Ends the page whose functions are loaded.
    pub(crate) fn release(&mut self) -> io::Result<()> {
        Frame::release().send(&mut self.input)
    }

    fn add_loaded_version(&mut self, version: &str) {
        if self.known.contains(version) {
            return;
        }
        if self.known.len() >= KNOWN_COUNT_MAX {
            self.known.clear();
        }
        self.known.insert(version.to_owned());
    }

    /// The error for a worker that ended unexpectedly.
    fn unexpected_exit_error(&self, error: &io::Error) -> ScriptError {
        // A worker whose output ended is about to exit.
        let deadline = Instant::now() + Duration::from_millis(200);
        while self.is_alive() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(2));
        }
        let status = self.process.lock().try_wait();
        kill(&self.process);
        match status {
            Ok(Some(status)) if exceeded_cpu_time(&status) => ScriptError::TimedOut,
            Ok(Some(status)) => engine_failed("ended", &status),
            _ => engine_failed("failed", error),
        }
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        kill(&self.process);
        // A killed process keeps its id until we wait for it.
        drop(self.process.lock().wait());
    }
}

#[cfg(unix)]
fn exceeded_cpu_time(status: &ExitStatus) -> bool {
    std::os::unix::process::ExitStatusExt::signal(status) == Some(rustix::process::Signal::XCPU.as_raw())
}

#[cfg(not(unix))]
fn exceeded_cpu_time(_: &ExitStatus) -> bool {
    false
}

fn kill(process: &Mutex<Child>) {
    // An error means that it has ended already.
    drop(process.lock().kill());
}

fn engine_failed(what: &str, why: &dyn std::fmt::Display) -> ScriptError {
    ScriptError::Engine { message: format!("the worker process {what}: {why}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A worker that only has to start: it ends with its input.
    fn program() -> Program {
        Program { path: "/bin/cat".into(), arguments: Vec::new() }
    }

    #[test]
    fn the_manager_is_woken_for_earlier_deadlines_alone() {
        let workers = Workers::start(program());
        let worker = workers.take().expect("a worker");
        let watch = |time: Duration| {
            let watch =
                KillWhen { deadline: Instant::now() + time, is_function: false, caller: Caller::default() };
            workers.shared.watch(&worker, watch)
        };
        let checks = || workers.shared.checks.load(Ordering::Relaxed);
        let first = watch(Duration::from_secs(60));
        std::thread::sleep(Duration::from_millis(50));
        let before = checks();
        for _ in 0..1000 {
            let number = watch(Duration::from_secs(90));
            assert!(workers.shared.stop_watching(number));
        }
        assert!(workers.shared.stop_watching(first));
        // Nothing runs now; the thread still waits for the first deadline.
        for _ in 0..1000 {
            let number = watch(Duration::from_secs(90));
            assert!(workers.shared.stop_watching(number));
        }
        std::thread::sleep(Duration::from_millis(50));
        assert_eq!(checks(), before);
        let overdue = watch(Duration::from_millis(20));
        while worker.is_alive() {
            std::thread::sleep(Duration::from_millis(1));
        }
        assert!(!workers.shared.stop_watching(overdue), "it was killed at its deadline");
    }

    #[test]
    fn the_pool_goes_on_after_a_panic() {
        let workers = Workers::start(program());
        let early = workers.take().expect("a worker");
        workers.shared.panics_wanted.store(2, Ordering::SeqCst);
        for panics in 1..=2 {
            let failed = workers.take().err().map(|error| error.to_string()).unwrap_or_default();
            assert!(failed.contains("the pool of workers is stopping or failed"), "{failed}");
            // The request is answered while the thread unwinds.
            while workers.panics() < panics {
                std::thread::sleep(Duration::from_millis(1));
            }
        }
        assert!(workers.take().expect("a worker").is_alive());
        assert!(early.is_alive(), "workers end with the thread that started them");
        assert_eq!(workers.panics(), 2);
    }
}
