//! Tests written in Rust: cargo builds the binaries, then as many run at a time as there are processors. What one prints is
//! shown when it ends, so that the outputs do not mix.

use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Mutex;
use std::time::Instant;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::command::{TestCounts, cargo, cargo_line, root, target_dir};

type Environment<'a> = &'a [(&'a str, String)];

/// The tests of all crates. Examples in documentation comments are not run: tidy refuses them.
pub fn workspace(environment: Environment<'_>) -> Result<TestCounts> {
    let mut build = cargo();
    build.args(["test", "--release", "--workspace"]);
    let at_once = std::thread::available_parallelism().map_or(1, usize::from);
    run_all(built(&mut build)?, at_once, environment)
}

/// The tests of one name, of all crates.
pub fn named(test: &str, environment: Environment<'_>) -> Result<TestCounts> {
    let mut build = cargo();
    build.args(["test", "--release", "--workspace", "--test", test]);
    run_all(built(&mut build)?, 1, environment)
}

/// The tests that a command of cargo builds.
pub fn built_and_run(build: &mut Command) -> Result<TestCounts> {
    run_all(built(build)?, 1, &[])
}

/// The tests of the Rust SDK, which share one server.
pub fn sdk(environment: Environment<'_>) -> Result<TestCounts> {
    let mut build = cargo();
    build.args(["test", "--release", "--manifest-path", "tests/sdk/rust/Cargo.toml"]);
    build.env("CARGO_TARGET_DIR", target_dir().join("sdk-rust"));
    run_all(built(&mut build)?, 1, environment)
}

#[derive(Debug)]
struct TestBinary {
    executable: PathBuf,
    /// The file with its crate's root.
    source: PathBuf,
    package: PathBuf,
}

fn built(build: &mut Command) -> Result<Vec<TestBinary>> {
    build.args(["--no-run", "--message-format=json-render-diagnostics"]);
    let output = build.stderr(Stdio::inherit()).output().context("starting cargo")?;
    if !output.status.success() {
        bail!("{build:?} ended with {}", output.status);
    }
    let mut found = Vec::new();
    for line in String::from_utf8(output.stdout)?.lines() {
        found.extend(test_binary(&serde_json::from_str(line)?));
    }
    Ok(found)
}

fn test_binary(message: &Value) -> Option<TestBinary> {
    let path = |value: &Value| value.as_str().map(PathBuf::from);
    let is_test = message["reason"] == "compiler-artifact" && message["profile"]["test"] == true;
    Some(TestBinary {
        executable: path(&message["executable"]).filter(|_| is_test)?,
        source: path(&message["target"]["src_path"])?,
        package: path(&message["manifest_path"])?.parent()?.to_path_buf(),
    })
}

fn run_all(
    mut binaries: Vec<TestBinary>,
    at_once: usize,
    environment: Environment<'_>,
) -> Result<TestCounts> {
    binaries.reverse();
    let waiting = Mutex::new(binaries);
    let total = Mutex::new(TestCounts::default());
    let work = || -> Result<()> {
        loop {
            let Some(binary) = waiting.lock().expect("no thread panicked").pop() else { return Ok(()) };
            let test_counts = binary.run(environment)?;
            total.lock().expect("no thread panicked").add(test_counts);
        }
    };
    std::thread::scope(|scope| -> Result<()> {
        let threads: Vec<_> = (0..at_once).map(|_| scope.spawn(work)).collect();
        threads.into_iter().try_for_each(|thread| thread.join().expect("no thread panicked"))
    })?;
    Ok(total.into_inner().expect("no thread panicked"))
}

impl TestBinary {
    /// As cargo runs it: in the folder of its package.
    fn run(&self, environment: Environment<'_>) -> Result<TestCounts> {
        let mut command = Command::new(&self.executable);
        command.current_dir(&self.package).env("CARGO_MANIFEST_DIR", &self.package);
        command.envs(environment.iter().map(|(name, value)| (*name, value))).stdin(Stdio::null());
        let started = Instant::now();
        let output = command.output().with_context(|| format!("starting {}", self.executable.display()))?;
        self.show(&output, started.elapsed().as_secs_f64());
        Ok(self.test_counts(&output))
    }

    /// In one piece.
    fn show(&self, output: &Output, seconds: f64) {
        let [out, err] = [&output.stdout, &output.stderr].map(|bytes| String::from_utf8_lossy(bytes));
        let source = self.source.strip_prefix(root()).unwrap_or(&self.source).display();
        println!("\n--- {source}, {seconds:.1} s\n{}{}", err.trim_start(), out.trim_start());
    }

    /// A binary that fails without reporting a failed test counts as one failure.
    fn test_counts(&self, output: &Output) -> TestCounts {
        let text = String::from_utf8_lossy(&output.stdout);
        let mut test_counts = TestCounts::default();
        for line in text.lines() {
            test_counts.add(cargo_line(line).unwrap_or_default());
            test_counts.names.extend(passed(line).and_then(|test| self.name(test)));
        }
        if !output.status.success() && test_counts.failed == 0 {
            println!("{} ended with {}", self.executable.display(), output.status);
            test_counts.failed += 1;
        }
        test_counts
    }

    /// `file::name` of `module::module::name`: the longest path of modules that is a file has the test.
    fn name(&self, test: &str) -> Option<String> {
        let (modules, name) = test.rsplit_once("::").unwrap_or(("", test));
        let modules: Vec<&str> = modules.split("::").filter(|module| !module.is_empty()).collect();
        let folder = self.source.parent()?;
        let files = (1..=modules.len()).rev().flat_map(|depth| module_files(folder, &modules[..depth]));
        let file = files.into_iter().find(|file| file.is_file()).unwrap_or_else(|| self.source.clone());
        Some(format!("{}::{name}", file.strip_prefix(root()).ok()?.display()))
    }
}

fn module_files(folder: &Path, modules: &[&str]) -> [PathBuf; 2] {
    let module = modules.iter().fold(folder.to_path_buf(), |path, module| path.join(module));
    [module.with_extension("rs"), module.join("mod.rs")]
}

/// `test module::name ... ok`
fn passed(line: &str) -> Option<&str> {
    let name = line.strip_prefix("test ")?.strip_suffix(" ... ok")?;
    Some(name.strip_suffix(" - should panic").unwrap_or(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passed_tests_are_named_by_their_file() {
        let name = |source: &str, line: &str| {
            let source = root().join(source);
            let binary = TestBinary { executable: PathBuf::new(), package: PathBuf::new(), source };
            passed(line).and_then(|test| binary.name(test))
        };
        let own = "xtask/src/rust_tests.rs::passed_tests_are_named_by_their_file";
        let line = "test rust_tests::tests::passed_tests_are_named_by_their_file ... ok";
        assert_eq!(name("xtask/src/main.rs", line).as_deref(), Some(own));
        assert_eq!(
            name("xtask/src/main.rs", "test f - should panic ... ok").as_deref(),
            Some("xtask/src/main.rs::f")
        );
        assert_eq!(name("xtask/src/main.rs", "test f ... FAILED"), None);
        assert_eq!(name("xtask/src/main.rs", "test f ... ignored"), None);
    }

    #[test]
    fn only_test_binaries_are_run() {
        let message = |reason: &str, is_test: bool, executable: Value| {
            let target = serde_json::json!({"src_path": "/w/crates/a/tests/b.rs"});
            let profile = serde_json::json!({"test": is_test});
            test_binary(&serde_json::json!({"reason": reason, "profile": profile, "target": target,
                "manifest_path": "/w/crates/a/Cargo.toml", "executable": executable}))
        };
        let found = message("compiler-artifact", true, "/t/b-1".into()).expect("a test binary");
        assert_eq!((found.executable, found.package), ("/t/b-1".into(), "/w/crates/a".into()));
        assert!(message("compiler-artifact", false, "/t/b".into()).is_none(), "an example");
        assert!(message("compiler-artifact", true, Value::Null).is_none(), "a library");
        assert!(message("build-finished", true, "/t/b".into()).is_none());
    }
}
