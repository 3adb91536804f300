//! Running other programs, with their output shown and their test counts read.

use std::collections::BTreeSet;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

/// Tests counted from the runners' own closing lines, and the names of those that passed.
#[derive(Clone, Debug, Default)]
pub struct TestCounts {
    pub passed: u64,
    pub failed: u64,
    /// `file::name`, the file from the root of the workspace.
    pub names: BTreeSet<String>,
    /// Folders of suites whose tools are not on this machine.
    pub left_out: BTreeSet<&'static str>,
    /// Tests of these suites that docs/compatibility.md names.
    pub unproved_rows: u64,
}

impl TestCounts {
    pub fn counted(passed: u64, failed: u64) -> TestCounts {
        TestCounts { passed, failed, ..TestCounts::default() }
    }

    pub fn passed(name: &str) -> TestCounts {
        TestCounts { names: BTreeSet::from([name.to_owned()]), ..TestCounts::default() }
    }

    pub fn add(&mut self, other: TestCounts) {
        self.passed += other.passed;
        self.failed += other.failed;
        self.names.extend(other.names);
        self.left_out.extend(other.left_out);
        self.unproved_rows += other.unproved_rows;
    }
}

/// Asked at run time: a target directory that several checkouts share may hold a binary built in another one.
pub fn root() -> PathBuf {
    let manifest = std::env::var_os("CARGO_MANIFEST_DIR")
        .map_or_else(|| env!("CARGO_MANIFEST_DIR").into(), PathBuf::from);
    manifest.parent().expect("xtask lies in the workspace").to_path_buf()
}

pub fn target_dir() -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root().join("target"), PathBuf::from)
}

pub fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(root());
    // What cargo told this program about its own package. Build scripts that ask for it would run again, and all that
    // depends on them, whenever the caller changes between cargo and this program.
    for (name, _) in std::env::vars_os() {
        let named = name.to_string_lossy();
        if named.starts_with("CARGO_PKG_") || named.starts_with("CARGO_MANIFEST_") {
            command.env_remove(&name);
        }
    }
    command
}

/// Fails unless the program exits with 0.
pub fn check(command: &mut Command) -> Result<()> {
    let shown = format!("{command:?}");
    let status = command.status().with_context(|| format!("starting {shown}"))?;
    if !status.success() {
        bail!("{shown} ended with {status}");
    }
    Ok(())
}

/// Builds the server once, in the profile the tests use too.
pub fn build_server() -> Result<PathBuf> {
    check(cargo().args(["build", "--release", "--package", "quire-cli"]))?;
    Ok(target_dir().join("release").join("quire"))
}

/// Runs a test runner, shows its output and adds up the lines that `read` understands. A runner that fails without
/// reporting a failed test counts as one failure.
pub fn counted(command: &mut Command, read: fn(&str) -> Option<TestCounts>) -> Result<TestCounts> {
    let shown = format!("{command:?}");
    let mut child = command.stdout(Stdio::piped()).spawn().with_context(|| format!("starting {shown}"))?;
    let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
    let mut test_counts = TestCounts::default();
    for line in output.lines() {
        let line = line?;
        println!("{line}");
        test_counts.add(read(&line).unwrap_or_default());
    }
    let status = child.wait()?;
    if !status.success() && test_counts.failed == 0 {
        println!("{shown} ended with {status}");
        test_counts.failed += 1;
    }
    Ok(test_counts)
}

/// `test result: ok. 12 passed; 0 failed; ...`
pub fn cargo_line(line: &str) -> Option<TestCounts> {
    let counts = line.strip_prefix("test result: ")?;
    Some(TestCounts::counted(number_before(counts, " passed")?, number_before(counts, " failed")?))
}

/// `3 failed, 12 passed, 1 error in 1.2s`, with or without `=` around it, and `PASSED file::name[parameter]`.
pub fn pytest_line(line: &str) -> Option<TestCounts> {
    if let Some(name) = line.strip_prefix("PASSED ") {
        let name = name.split('[').next().unwrap_or(name).trim_end();
        return Some(TestCounts::passed(name));
    }
    let counts = line.trim_matches(['=', ' ']);
    if !counts.starts_with(|character: char| character.is_ascii_digit()) || !counts.contains(" in ") {
        return None;
    }
    let failed = number_before(counts, " failed").unwrap_or(0) + number_before(counts, " error").unwrap_or(0);
    let passed = number_before(counts, " passed").unwrap_or(0);
    (passed + failed > 0).then(|| TestCounts::counted(passed, failed))
}

/// Node's runner in the spec reporter: `ℹ pass 12`, `ℹ fail 0`.
pub fn node_line(line: &str) -> Option<TestCounts> {
    let rest = line.strip_prefix("ℹ ").or_else(|| line.strip_prefix("# "))?;
    if let Some(count) = rest.strip_prefix("pass ") {
        return Some(TestCounts::counted(count.parse().ok()?, 0));
    }
    let count = rest.strip_prefix("fail ")?;
    Some(TestCounts::counted(0, count.parse().ok()?))
}

/// `--- PASS: TestName (0.10s)` of `go test -v`; parts of a test are indented and do not count.
pub fn go_line(line: &str) -> Option<TestCounts> {
    let name = |rest: &str| rest.split(' ').next().unwrap_or_default().to_owned();
    if let Some(rest) = line.strip_prefix("--- PASS: ") {
        return Some(TestCounts { passed: 1, ..TestCounts::passed(&name(rest)) });
    }
    line.starts_with("--- FAIL: ").then(|| TestCounts::counted(0, 1))
}

/// Surefire's last line, `[INFO] Tests run: 12, Failures: 1, Errors: 0, Skipped: 2`; the line of a class has its time, too.
pub fn surefire_line(line: &str) -> Option<TestCounts> {
    let counts = line.split_once("] Tests run: ").filter(|_| !line.contains("Time elapsed"))?.1;
    let run: u64 = counts.split(',').next()?.parse().ok()?;
    let count = |word: &str| counts.split_once(word)?.1.split(',').next()?.trim().parse::<u64>().ok();
    let failed = count("Failures: ")? + count("Errors: ")?;
    Some(TestCounts::counted(run.checked_sub(failed + count("Skipped: ")?)?, failed))
}

fn number_before(text: &str, word: &str) -> Option<u64> {
    let before = &text[..text.find(word)?];
    let digits = before.rsplit(|character: char| !character.is_ascii_digit()).next()?;
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(read: fn(&str) -> Option<TestCounts>, line: &str, expected: Option<(u64, u64)>) {
        assert_eq!(
            read(line).map(|test_counts| (test_counts.passed, test_counts.failed)),
            expected,
            "{line}"
        );
    }

    #[test]
    fn closing_lines_are_read() {
        check(cargo_line, "test result: ok. 12 passed; 0 failed; 0 ignored", Some((12, 0)));
        check(cargo_line, "running 12 tests", None);
        check(pytest_line, "1 failed, 76 passed, 70 warnings in 11.24s", Some((76, 1)));
        check(pytest_line, "===== 2 failed, 1 passed, 1 error in 0.50s =====", Some((1, 3)));
        check(pytest_line, "77 passed in 9.85s", Some((77, 0)));
        check(pytest_line, "waiting in 3s", None);
        let passed = pytest_line("PASSED tests/sdk/python/test_items.py::test_etags[1]").expect("a name");
        assert!(passed.names.contains("tests/sdk/python/test_items.py::test_etags"), "{passed:?}");
        check(go_line, "--- PASS: TestPatch (0.10s)", Some((1, 0)));
        check(go_line, "--- FAIL: TestPatch (0.10s)", Some((0, 1)));
        check(go_line, "    --- PASS: TestPatch/part (0.10s)", None);
        check(surefire_line, "[INFO] Tests run: 12, Failures: 0, Errors: 0, Skipped: 0", Some((12, 0)));
        check(surefire_line, "[ERROR] Tests run: 12, Failures: 1, Errors: 2, Skipped: 3", Some((6, 3)));
        let of_a_class =
            "[INFO] Tests run: 5, Failures: 0, Errors: 0, Skipped: 0, Time elapsed: 1 s -- in quire.A";
        check(surefire_line, of_a_class, None);
        check(node_line, "ℹ pass 21", Some((21, 0)));
        check(node_line, "ℹ fail 2", Some((0, 2)));
        check(node_line, "ℹ suites 0", None);
    }
}
