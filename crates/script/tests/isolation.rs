//! Runs in worker processes: this program is also the worker.

#![allow(clippy::unwrap_used, reason = "a test, though not by the usual harness")]

mod messages; // operations that go to the host together
mod support;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use messages::{
    a_long_queue_goes_in_bounded_messages, a_message_changes_nothing_but_the_cost,
    a_worker_that_dies_inside_a_message_fails_its_run, operations_of_one_turn_share_a_message,
};
use quire_script::*;
use quire_testkit::hostile::{CORPUS, ExpectedEnd, NEXT, UNHARMED};
use support::*;

/// Open files that this process inherited: every descendant has them, too.
static INHERITED: std::sync::OnceLock<usize> = std::sync::OnceLock::new();

fn open_count(process: &str) -> usize {
    std::fs::read_dir(format!("/proc/{process}/fd")).unwrap().count()
}

fn main() -> ExitCode {
    INHERITED.get_or_init(|| open_count("self") - 4); // the standard streams, and the directory just read
    let mut arguments = std::env::args().skip(1);
    match (arguments.next().as_deref(), arguments.next()) {
        (Some("worker"), _) => return quire_script::serve(None),
        (Some("probe"), Some(what)) => return probe(&what),
        _ => {}
    }
    let tests: &[(&str, fn())] = &[
        ("runs_as_in_process", runs_as_in_process),
        ("a_stuck_worker_is_killed_and_others_go_on", a_stuck_worker_is_killed_and_others_go_on),
        ("a_dead_worker_fails_its_run_alone", a_dead_worker_fails_its_run_alone),
        ("workers_have_nothing_of_ours", workers_have_nothing_of_ours),
        ("workers_end_with_the_server", workers_end_with_the_server),
        ("many_at_once", many_at_once),
        ("a_round_trip_is_cheap", a_round_trip_is_cheap),
        ("operations_of_one_turn_share_a_message", operations_of_one_turn_share_a_message),
        ("a_message_changes_nothing_but_the_cost", a_message_changes_nothing_but_the_cost),
        ("a_long_queue_goes_in_bounded_messages", a_long_queue_goes_in_bounded_messages),
        (
            "a_worker_that_dies_inside_a_message_fails_its_run",
            a_worker_that_dies_inside_a_message_fails_its_run,
        ),
        ("a_confined_process_can_do_nothing_else", a_confined_process_can_do_nothing_else),
        ("workers_that_cannot_start_are_reported", workers_that_cannot_start_are_reported),
        ("functions_run_as_in_process", functions_run_as_in_process),
        ("a_stuck_function_is_killed_and_others_go_on", a_stuck_function_is_killed_and_others_go_on),
        ("a_dead_worker_fails_its_call_alone", a_dead_worker_fails_its_call_alone),
        ("calls_together_end_early", calls_together_end_early),
        ("functions_leave_nothing_in_their_worker", functions_leave_nothing_in_their_worker),
        ("procedures_leave_nothing_in_their_worker", procedures_leave_nothing_in_their_worker),
        ("calls_together_are_cheap", calls_together_are_cheap),
    ];
    // In the format of the usual test harness, which is parsed to find out what ran.
    for (name, test) in tests {
        test();
        println!("test {name} ... ok");
    }
    println!("test result: ok. {} passed; 0 failed", tests.len());
    ExitCode::SUCCESS
}

fn scripts(limits: Limits) -> Scripts {
    let program = std::env::current_exe().unwrap();
    Scripts::isolated(limits, &Isolation::Process { program, arguments: vec!["worker".to_owned()] })
}

fn check(scripts: &Scripts, text: &str, expected: &str) {
    let text = body(text);
    let mut host = MemoryHost::with(&[r#"{"id": "a", "n": 1}"#]);
    let shown = show(scripts.run(&procedure(&text, "[]"), &mut host));
    assert!(shown.starts_with(expected), "{text}\n  {shown}");
}

fn runs_as_in_process() {
    let scripts = scripts(Limits::default());
    for _ in 0..2 {
        check(&scripts, "c.readDocument(doc('a'), (e, d) => set(d.n))", "1");
        check(
            &scripts,
            "c.createDocument(link, {id: 'b'}, (e, d) => c.readDocuments(link, (e, d) => set(d.length)))",
            "2",
        );
        check(&scripts, "c.createDocument(link, {id: 'a'})", "409 Error: ");
        check(&scripts, "throw new Error(4444, 'ü')", "4444 Error: ü");
        check(&scripts, "this is prose", "Encountered exception while compiling Javascript.");
        check(&scripts, "set('x'.repeat(3e6))", "\"xxx");
        check(&scripts, "set(typeof kept); kept = 1", "\"undefined\"");
    }
    let outcome =
        scripts.run(&procedure("function () { console.log('a %s', 1) }", "[]"), &mut MemoryHost::default());
    assert_eq!(outcome.unwrap().log.as_deref(), Some("a 1"));
    let text = body("c.readDocument(doc('a'))");
    let mut host = MemoryHost { stop_at: Some(1), ..MemoryHost::with(&[]) };
    assert_eq!(show(scripts.run(&procedure(&text, "[]"), &mut host)), "the host stopped the script");
}

/// The engine does not check the time in this built-in.
const STUCK: &str = "new Array(4294967295).join()";

fn a_stuck_worker_is_killed_and_others_go_on() {
    let limits = Limits {
        soft_time: Duration::from_millis(100),
        time: Duration::from_millis(200),
        ..Limits::default()
    };
    let scripts = scripts(limits);
    std::thread::scope(|scope| {
        let stuck =
            scope.spawn(|| check(&scripts, STUCK, "The requested operation exceeded maximum alloted time."));
        let mut count = 0;
        while !stuck.is_finished() {
            check(&scripts, "set(1)", "1");
            count += 1;
        }
        assert!(count > 10, "{count}");
    });
    check(&scripts, "set(2)", "2");
}

/// Kills its worker from the outside.
struct Killer;

impl Host for Killer {
    fn call(&mut self, _: Request) -> Answer {
        for worker in workers() {
            assert!(std::process::Command::new("kill").args(["-9", &worker]).status().unwrap().success());
        }
        std::thread::sleep(Duration::from_millis(50));
        Reply::Deleted.into()
    }
}

/// Process ids of our running children.
fn workers() -> Vec<String> {
    let us = std::process::id().to_string();
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let name = entry.file_name().into_string().unwrap_or_default();
        let Ok(stat) = std::fs::read_to_string(format!("/proc/{name}/stat")) else { continue };
        let Some((_, rest)) = stat.rsplit_once(") ") else { continue };
        let fields: Vec<&str> = rest.split(' ').collect();
        if fields[1] == us && fields[0] != "Z" {
            found.push(name);
        }
    }
    found
}

fn a_dead_worker_fails_its_run_alone() {
    let scripts = scripts(Limits::default());
    let text = body("c.deleteDocument(doc('a'))");
    let failure = scripts.run(&procedure(&text, "[]"), &mut Killer).unwrap_err();
    assert!(
        matches!(&failure.error, ScriptError::Engine { message } if message.contains("worker process ended")),
        "{failure:?}"
    );
    check(&scripts, "set(1)", "1");
}

fn workers_have_nothing_of_ours() {
    let kept = std::fs::File::open("/proc/self/status").unwrap();
    let scripts = scripts(Limits::default());
    check(&scripts, "set(1)", "1");
    let workers = workers();
    assert_eq!(workers.len(), 1);
    // Standard input and output, each twice, and the null device for errors.
    assert_eq!(open_count(&workers[0]), 5 + INHERITED.get().unwrap());
    assert!(std::fs::read(format!("/proc/{}/environ", workers[0])).unwrap().is_empty());
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", workers[0])).unwrap();
    let limit = |name: &str| limits.lines().find(|line| line.starts_with(name)).unwrap().to_owned();
    assert!(limit("Max open files").contains(" 0 "), "{limits}");
    assert!(limit("Max core file size").contains(" 0 "), "{limits}");
    assert!(!limit("Max address space").contains("unlimited"), "{limits}");
    assert!(!limit("Max cpu time").starts_with("Max cpu time              unlimited"), "{limits}");
    drop(kept);
}

fn workers_end_with_the_server() {
    let limits =
        Limits { soft_time: Duration::from_secs(50), time: Duration::from_secs(60), ..Limits::default() };
    let scripts = scripts(limits);
    check(&scripts, "set(1)", "1");
    assert!(!workers().is_empty());
    drop(scripts);
    assert!(workers().is_empty());
}

fn many_at_once() {
    let scripts = scripts(Limits::default());
    std::thread::scope(|scope| {
        for number in 0..6 {
            let scripts = &scripts;
            scope.spawn(move || {
                for round in 0..30 {
                    let text = "function (a, b) { getContext().getResponse().setBody(a * 100 + b) }";
                    let parameters = format!("[{number}, {round}]");
                    let shown = show(scripts.run(&procedure(text, &parameters), &mut MemoryHost::default()));
                    assert_eq!(shown, (number * 100 + round).to_string());
                }
            });
        }
    });
}

/// The bound is far above the real cost; the figure is printed.
fn a_round_trip_is_cheap() {
    const RUN_COUNT: u32 = 500;
    let scripts = scripts(Limits::default());
    check(&scripts, "c.readDocument(doc('a'), (e, d) => set(d.n))", "1");
    let started = Instant::now();
    for _ in 0..RUN_COUNT {
        check(&scripts, "c.readDocument(doc('a'), (e, d) => set(d.n))", "1");
    }
    let each = started.elapsed() / RUN_COUNT;
    println!("one run with one operation: {each:?}");
    assert!(each < Duration::from_millis(50), "{each:?}");
}

fn script(body: &str) -> Script<'_> {
    Script { version: body, body }
}

fn show_value(called: &CallResult) -> String {
    match called {
        Ok(value) => value.to_json(),
        Err(error) => error.to_string(),
    }
}

fn functions_run_as_in_process() {
    let (here, elsewhere) = (Scripts::new(Limits::default()), scripts(Limits::default()));
    let bodies = [
        "a => a",
        "(...a) => a.length",
        "a => typeof a",
        "function f() { return f }",
        "() => '\\ud800'",
        "() => { throw new Error(4444, 'ü') }",
        "() => 1n",
        "() => ({a: [1, null]})",
        "() => NaN",
        "x => { if (typeof kept === 'undefined') kept = 0; return kept += x }",
    ];
    let texts: Vec<Script<'_>> = bodies.iter().map(|body| script(body)).collect();
    let (mut near, mut far) = (
        here.functions(&texts, &Caller::default()).unwrap(),
        elsewhere.functions(&texts, &Caller::default()).unwrap(),
    );
    assert!(far.is_remote() && !near.is_remote());
    let parse = |json: &str| quire_value::text::parse(json.as_bytes(), Default::default()).unwrap();
    let values = [r#"1"#, "-0.5", "9007199254740993", r#""ü""#, "null", "true", r#"{"a": [1, {}]}"#, "[]"];
    let mut arguments: Vec<quire_value::Value> = values.map(parse).to_vec();
    arguments.push(quire_value::Value::Undefined);
    for (index, body) in bodies.iter().enumerate() {
        for argument in &arguments {
            let given = std::slice::from_ref(argument);
            assert_eq!(
                show_value(&near.call(index, given)),
                show_value(&far.call(index, given)),
                "{body} of {argument:?}"
            );
        }
    }
    let broken = elsewhere.functions(&[script("functio () {}")], &Caller::default()).unwrap().call(0, &[]);
    assert!(matches!(broken, Err(ScriptError::Compile { .. })), "{broken:?}");
}

fn a_stuck_function_is_killed_and_others_go_on() {
    let scripts = scripts(Limits { function_time: Duration::from_millis(200), ..Limits::default() });
    let stuck_texts = [script("() => 1"), script("() => new Array(4294967295).join()")];
    std::thread::scope(|scope| {
        let stuck = scope.spawn(|| {
            let mut functions = scripts.functions(&stuck_texts, &Caller::default()).unwrap();
            let calls = [0, 1, 0].map(|index| FunctionCall::new(index, &[]));
            let together = functions.call_together(&calls);
            assert_eq!(together, Err(ScriptError::TimedOut), "it takes the others of its message with it");
            // The next call uses another worker.
            (functions.call(0, &[]), functions.call(1, &[]), functions.call(0, &[]))
        });
        let mut count = 0;
        while !stuck.is_finished() {
            let mut functions = scripts.functions(&[script("() => 2")], &Caller::default()).unwrap();
            assert_eq!(show_value(&functions.call(0, &[])), "2");
            count += 1;
        }
        assert!(count > 10, "{count}");
        let (first, second, third) = stuck.join().unwrap();
        assert_eq!([show_value(&first), show_value(&third)], ["1", "1"]);
        assert_eq!(second, Err(ScriptError::TimedOut));
    });
}

fn a_dead_worker_fails_its_call_alone() {
    let scripts = scripts(Limits::default());
    let mut functions = scripts.functions(&[script("a => a")], &Caller::default()).unwrap();
    assert_eq!(show_value(&functions.call(0, &[quire_value::Value::from(1)])), "1");
    for worker in workers() {
        assert!(std::process::Command::new("kill").args(["-9", &worker]).status().unwrap().success());
    }
    let failed = functions.call(0, &[quire_value::Value::from(2)]);
    assert!(
        matches!(&failed, Err(ScriptError::Engine { message }) if message.contains("worker process")),
        "{failed:?}"
    );
    assert_eq!(show_value(&functions.call(0, &[quire_value::Value::from(3)])), "3");
}

fn calls_together_end_early() {
    let scripts = scripts(Limits { function_time: Duration::from_millis(300), ..Limits::default() });
    let slow = script("ms => { var end = Date.now() + ms; while (Date.now() < end); return ms }");
    let mut functions =
        scripts.functions(&[slow, script("() => { for (;;); }")], &Caller::default()).unwrap();
    let calls: Vec<FunctionCall> =
        (0..50).map(|_| FunctionCall::new(0, &[quire_value::Value::from(20)])).collect();
    let done = functions.call_together(&calls).unwrap();
    assert!(!done.is_empty() && done.len() < calls.len(), "{}", done.len());
    let calls = [(0, 1), (1, 0), (0, 1)].map(|(index, ms)| FunctionCall::new(index, &[ms.into()]));
    let done = functions.call_together(&calls).unwrap();
    assert_eq!(done, [Ok(quire_value::Value::from(1)), Err(ScriptError::TimedOut)]);
    assert_eq!(show_value(&functions.call(0, &[quire_value::Value::from(1)])), "1");
}

fn functions_leave_nothing_in_their_worker() {
    let scripts = scripts(Limits::default());
    let counting = script("() => { if (typeof kept === 'undefined') kept = 0; return ++kept }");
    for _ in 0..3 {
        let mut functions = scripts.functions(&[counting], &Caller::default()).unwrap();
        assert_eq!(show_value(&functions.call(0, &[])), "1");
        assert_eq!(show_value(&functions.call(0, &[])), "2");
    }
    check(&scripts, "set(typeof kept)", "\"undefined\"");
    assert_eq!(workers().len(), 1, "all of them took turns in one worker");
}

fn procedures_leave_nothing_in_their_worker() {
    let scripts = scripts(Limits::default());
    for hostile in CORPUS.iter().filter(|hostile| hostile.expected == ExpectedEnd::Value("1")) {
        let text = hostile.procedure();
        assert_eq!(show(scripts.run(&procedure(&text, "[]"), &mut MemoryHost::default())), "1", "{text}");
        check(&scripts, NEXT, UNHARMED);
    }
    assert_eq!(workers().len(), 1, "all of them took turns in one worker");
}

/// CPU time of this process and its finished children.
fn processor_time() -> Duration {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    let (_, rest) = stat.rsplit_once(") ").unwrap();
    let ticks: u64 = rest.split(' ').skip(11).take(4).map(|field| field.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// The figure is printed in a release build; the bound detects a change of kind, such as a message for every call.
fn calls_together_are_cheap() {
    const BATCH: usize = 256;
    const BATCH_COUNT: usize = 400;
    let before = processor_time();
    {
        let scripts = scripts(Limits::default());
        let mut functions = scripts.functions(&[script("(a, b) => a * 2 + b")], &Caller::default()).unwrap();
        for _ in 0..BATCH_COUNT {
            let call = |number: usize| FunctionCall::new(0, &[(number as i32).into(), 0.5.into()]);
            let calls: Vec<FunctionCall> = (0..BATCH).map(call).collect();
            let mut done = 0;
            while done < BATCH {
                done += functions.call_together(&calls[done..]).unwrap().len();
            }
        }
    }
    let each = (processor_time() - before) / (BATCH * BATCH_COUNT) as u32;
    println!("one call of many: {each:?} of processor time");
    assert!(each < Duration::from_micros(50), "{each:?}");
}

/// Confined like a worker, this process tries something. 0: it works; 1: it is refused with `EPERM`; 2: otherwise.
fn probe(what: &str) -> ExitCode {
    let (parent, has_landlock) = (rustix::process::getppid().unwrap(), has_landlock());
    let Ok(Confinement { calls: true, files }) = confine() else { return ExitCode::from(3) };
    if files != has_landlock {
        return ExitCode::from(4);
    }
    let tried: std::io::Result<()> = match what {
        "work" => work(),
        "open" => std::fs::File::open("/etc/passwd").map(drop),
        "create" => std::fs::File::create("/tmp/quire-probe").map(drop),
        "list" => std::fs::read_dir("/").map(drop),
        "remove" => std::fs::remove_file("/tmp/quire-probe"),
        "socket" => std::net::UdpSocket::bind("127.0.0.1:0").map(drop),
        "pair" => std::os::unix::net::UnixStream::pair().map(drop),
        "program" => std::process::Command::new("/bin/true").status().map(drop),
        "thread" => std::thread::Builder::new().spawn(|| ()).map(drop),
        "signal" => rustix::process::kill_process(parent, rustix::process::Signal::USR1).map_err(Into::into),
        "limits" => rustix::process::setrlimit(
            rustix::process::Resource::Nofile,
            rustix::process::Rlimit { current: Some(0), maximum: Some(0) },
        )
        .map_err(Into::into),
        _ => return ExitCode::from(2),
    };
    match tried {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.raw_os_error() == Some(1) => ExitCode::from(1),
        Err(_) => ExitCode::from(2),
    }
}

/// Whether this kernel has rules for files, as a set of rules about devices alone finds it. It holds for a thread that ends.
#[cfg(target_os = "linux")]
fn has_landlock() -> bool {
    use landlock::{AccessFs, LandlockStatus, Ruleset, RulesetAttr};
    let rules = || Ruleset::default().handle_access(AccessFs::MakeChar)?.create()?.restrict_self();
    let tried = std::thread::spawn(rules).join().unwrap().unwrap();
    matches!(tried.landlock, LandlockStatus::Available { .. })
}

#[cfg(not(target_os = "linux"))]
fn has_landlock() -> bool {
    false
}

/// What a worker does: memory, time, random bytes, writing.
fn work() -> std::io::Result<()> {
    use std::io::Write;
    let memory: Vec<u64> = (0..4_000_000).collect();
    let known: std::collections::HashSet<u64> = memory.iter().step_by(1000).copied().collect();
    let started = Instant::now();
    assert!(known.contains(&1000) && started.elapsed() < Duration::from_secs(600));
    std::io::stdout().write_all(b".")?;
    std::io::stdout().flush()
}

#[cfg(target_os = "linux")]
fn a_confined_process_can_do_nothing_else() {
    use std::os::unix::process::ExitStatusExt;
    const KILLED_BY_FILTER: Option<i32> = Some(31);
    let probe = |what: &str| {
        let program = std::env::current_exe().unwrap();
        let done = std::process::Command::new(program).args(["probe", what]).output().unwrap();
        (done.status.code(), done.status.signal())
    };
    assert_eq!(probe("work"), (Some(0), None));
    for refused in ["open", "create", "list", "remove", "signal", "limits"] {
        assert_eq!(probe(refused), (Some(1), None), "{refused}");
    }
    for fatal in ["socket", "pair", "program", "thread"] {
        assert_eq!(probe(fatal), (None, KILLED_BY_FILTER), "{fatal}");
    }
}

#[cfg(not(target_os = "linux"))]
fn a_confined_process_can_do_nothing_else() {}

fn workers_that_cannot_start_are_reported() {
    use rustix::process::{Resource, getrlimit, setrlimit};
    let gone = Isolation::Process { program: "/nonexistent/quire".into(), arguments: Vec::new() };
    let nothing = Isolation::Process { program: "/bin/true".into(), arguments: Vec::new() };
    for isolation in [gone, nothing] {
        let scripts = Scripts::isolated(Limits::default(), &isolation);
        for _ in 0..2 {
            check(&scripts, "set(1)", "the script engine failed: the worker process");
            let called = scripts.functions(&[script("() => 1")], &Caller::default()).unwrap().call(0, &[]);
            assert!(matches!(called, Err(ScriptError::Engine { .. })), "{called:?}");
        }
    }
    // Without a free descriptor no process can be started; later it can.
    let scripts = scripts(Limits::default());
    let before = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, rustix::process::Rlimit { current: Some(3), ..before }).unwrap();
    let failed = scripts.run(&procedure(&body("set(1)"), "[]"), &mut MemoryHost::with(&[]));
    setrlimit(Resource::Nofile, before).unwrap();
    let shown = show(failed);
    assert!(shown.starts_with("the script engine failed: the worker process cannot start"), "{shown}");
    check(&scripts, "set(1)", "1");
}
