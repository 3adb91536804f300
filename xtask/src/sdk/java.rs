//! The Java SDK and Spring Data, by Maven: one JVM for all tests of a server. What it fetches goes into `.test-tools/java`.

use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use super::Target;
use crate::command::{self, TestCounts, root, target_dir};
use crate::tools;

pub(super) const FOLDER: &str = "tests/sdk/java/";
/// `keytool` comes with Java.
pub(super) const PROGRAMS: &[&str] = &["mvn", "keytool"];

pub(super) fn run(target: &Target) -> Result<TestCounts> {
    let build = target_dir().join("sdk").join("java-build");
    let reports = build.join("surefire-reports");
    if reports.exists() {
        std::fs::remove_dir_all(&reports)?;
    }
    let mut command = Command::new("mvn");
    command.args(["--batch-mode", "--no-transfer-progress", "-Dstyle.color=never", "test"]);
    command.arg(format!("-Dmaven.repo.local={}", tools::folder().join("java").display()));
    command.arg(format!("-Dquire.build={}", build.display()));
    command.current_dir(root().join(FOLDER));
    target.set_environment(&mut command);
    match &target.authority {
        Some(authority) => command.arg(format!("-Dquire.jvm={}", trust(authority)?)),
        // The client makes https of http unless it is allowed not to.
        None => command.env("COSMOS_HTTP_CONNECTION_WITHOUT_TLS_ALLOWED", "true"),
    };
    let mut test_counts = command::counted(&mut command, command::surefire_line)?;
    if reports.exists() {
        add_names(&reports, &mut test_counts)?;
    }
    Ok(test_counts)
}

/// What a JVM is started with to trust an authority, as docs/migrating.md says.
fn trust(authority: &Path) -> Result<String> {
    let store = authority.with_file_name("trust.jks");
    let mut keytool = Command::new("keytool");
    keytool.args(["-importcert", "-noprompt", "-alias", "quire", "-storepass", "changeit", "-file"]);
    command::check(keytool.arg(authority).arg("-keystore").arg(&store).stderr(Stdio::null()))?;
    Ok(format!("-Djavax.net.ssl.trustStore={} -Djavax.net.ssl.trustStorePassword=changeit", store.display()))
}

fn add_names(reports: &Path, test_counts: &mut TestCounts) -> Result<()> {
    for entry in std::fs::read_dir(reports)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "xml") {
            test_counts
                .names
                .extend(passed(&std::fs::read_to_string(&path)?).context("a report of Surefire")?);
        }
    }
    Ok(())
}

/// `<testcase name="patch" classname="quire.ItemsTest" …/>`, or with what went wrong inside.
fn passed(report: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    for case in report.split("<testcase ").skip(1) {
        let attribute =
            |name: &str| Some(case.split_once(&format!("{name}=\""))?.1.split_once('"')?.0.to_owned());
        let (name, class) = (attribute("name")?, attribute("classname")?);
        let has_ended_well = ["<failure", "<error", "<skipped"].iter().all(|element| !case.contains(element));
        if has_ended_well {
            names.push(format!("{FOLDER}{}.java::{name}", class.replace('.', "/")));
        }
    }
    Some(names)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tests_that_passed() {
        let report = r#"<testsuite name="quire.ItemsTest">
            <testcase name="patch" classname="quire.ItemsTest" time="0.1"/>
            <testcase name="bulk" classname="quire.ItemsTest" time="0.1"><failure message="no"/></testcase>
            <testcase name="batch" classname="quire.ItemsTest" time="0.1"><system-out>x</system-out></testcase>"#;
        let file = "tests/sdk/java/quire/ItemsTest.java";
        assert_eq!(passed(report).unwrap(), [format!("{file}::patch"), format!("{file}::batch")]);
        assert_eq!(passed("<testcase name=\"a\">"), None);
    }
}
