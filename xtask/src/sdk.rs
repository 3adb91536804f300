//! The official SDKs against live servers: with 1 partition over http and scripts in the server's process, with 5 over TLS
//! and scripts in processes of their own.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use crate::command::{self, TestCounts, root, target_dir};
use crate::live::LiveServer;
use crate::rust_tests;
use crate::tools;

mod java;

struct Suite {
    name: &'static str,
    folder: &'static str,
    /// The suite is left out where one of these programs is not on the machine. Without any its tools are fetched.
    programs: &'static [&'static str],
    run: fn(&Target) -> Result<TestCounts>,
}

const SUITES: &[Suite] = &[
    Suite { name: "python", folder: "tests/sdk/python/", programs: &[], run: python },
    Suite { name: "js", folder: "tests/sdk/js/", programs: &[], run: node },
    Suite { name: "rust", folder: "tests/sdk/rust/", programs: &[], run: rust },
    Suite { name: "go", folder: "tests/sdk/go/", programs: &["go"], run: go },
    Suite { name: "java", folder: java::FOLDER, programs: java::PROGRAMS, run: java::run },
];

/// Where a suite's client connects to.
struct Target {
    endpoint: String,
    partitions: &'static str,
    /// PEM of the local authority when the endpoint is https.
    authority: Option<PathBuf>,
}

impl Target {
    fn set_environment(&self, command: &mut Command) {
        command.envs(self.environment());
    }

    fn environment(&self) -> Vec<(&'static str, String)> {
        let mut environment =
            vec![("QUIRE_ENDPOINT", self.endpoint.clone()), ("QUIRE_PARTITIONS", self.partitions.to_owned())];
        environment
            .extend(self.authority.as_ref().map(|authority| ("QUIRE_CA", authority.display().to_string())));
        environment
    }
}

/// Runs the named suites, or all.
pub fn run(names: &[&str]) -> Result<TestCounts> {
    if let Some(unknown) = names.iter().find(|name| SUITES.iter().all(|suite| suite.name != **name)) {
        bail!("there is no SDK suite {unknown:?}");
    }
    let binary = command::build_server()?;
    let mut test_counts = TestCounts::default();
    for suite in SUITES.iter().filter(|suite| names.is_empty() || names.contains(&suite.name)) {
        if suite.programs.iter().any(|program| !tools::available(program)) {
            println!("\n--- {} SDK left out: its tools are not on this machine", suite.name);
            test_counts.left_out.insert(suite.folder);
            continue;
        }
        for (partitions, tls) in [("1", false), ("5", true)] {
            test_counts.add(against_live(&binary, suite, partitions, tls)?);
        }
    }
    Ok(test_counts)
}

fn against_live(binary: &Path, suite: &Suite, partitions: &'static str, tls: bool) -> Result<TestCounts> {
    println!("\n--- {} SDK, {partitions} partition(s), {}", suite.name, if tls { "https" } else { "http" });
    let scratch = target_dir().join("sdk").join(format!("{}-{partitions}", suite.name));
    if scratch.exists() {
        std::fs::remove_dir_all(&scratch)?;
    }
    std::fs::create_dir_all(&scratch)?;
    let data = scratch.join("data");
    let data = data.to_str().context("the target directory is not UTF-8")?;
    let mut arguments = vec!["--data", data, "--partitions", partitions, "--enable-faults"];
    let certificates = tls.then(|| make_certificates(binary, &scratch)).transpose()?;
    if let Some(paths) = &certificates {
        arguments.extend(["--tls-cert", &paths.certificate, "--tls-key", &paths.key]);
        arguments.extend(["--script-isolation", "process"]);
    }
    let live = LiveServer::start(binary, &arguments)?;
    let endpoint = if tls { format!("https://localhost:{}/", live.port()) } else { live.endpoint.clone() };
    let authority = certificates.map(|paths| PathBuf::from(paths.authority));
    (suite.run)(&Target { endpoint, partitions, authority })
}

struct Certificates {
    certificate: String,
    key: String,
    authority: String,
}

fn make_certificates(binary: &Path, folder: &Path) -> Result<Certificates> {
    let folder = folder.join("cert");
    command::check(
        Command::new(binary).arg("cert").arg("--out").arg(&folder).stdout(std::process::Stdio::null()),
    )?;
    let path = |name: &str| {
        folder.join(name).to_str().map(str::to_owned).context("the target directory is not UTF-8")
    };
    Ok(Certificates {
        certificate: path("quire.pem")?,
        key: path("quire.key")?,
        authority: path("quire-ca.pem")?,
    })
}

fn python(target: &Target) -> Result<TestCounts> {
    let mut command = Command::new(tools::python()?);
    command
        .args(["-m", "pytest", "-q", "-rpfE", "-p", "no:cacheprovider", "tests/sdk/python"])
        .current_dir(root());
    command.env("PYTHONDONTWRITEBYTECODE", "1");
    target.set_environment(&mut command);
    command::counted(&mut command, command::pytest_line)
}

fn node(target: &Target) -> Result<TestCounts> {
    let home = tools::node()?;
    let passed = target_dir().join("sdk").join("js-passed.txt");
    let mut command = Command::new("node");
    command
        .args([
            "--test",
            "--test-concurrency=1",
            "--test-reporter=spec",
            "--test-reporter-destination=stdout",
        ])
        .arg("--test-reporter=./tests/sdk/js/passed.mjs")
        .arg(format!("--test-reporter-destination={}", passed.display()))
        .args(scripts("tests/sdk/js", ".test.mjs")?);
    command.current_dir(root()).env("QUIRE_NODE_MODULES", home.join("node_modules"));
    target.set_environment(&mut command);
    if let Some(authority) = &target.authority {
        command.env("NODE_EXTRA_CA_CERTS", authority);
    }
    let mut test_counts = command::counted(&mut command, command::node_line)?;
    test_counts.names.extend(std::fs::read_to_string(&passed)?.lines().map(str::to_owned));
    Ok(test_counts)
}

fn rust(target: &Target) -> Result<TestCounts> {
    let mut environment = target.environment();
    if let Some(authority) = &target.authority {
        environment.push(("SSL_CERT_FILE", authority.display().to_string()));
    }
    rust_tests::sdk(&environment)
}

fn go(target: &Target) -> Result<TestCounts> {
    let home = tools::folder().join("go");
    let mut command = Command::new("go");
    command.args(["test", "-v", "-count=1", "-modcacherw", "./..."]).current_dir(root().join("tests/sdk/go"));
    command.env("GOMODCACHE", home.join("modules")).env("GOCACHE", home.join("build"));
    command.env("GOTOOLCHAIN", "local");
    target.set_environment(&mut command);
    if let Some(authority) = &target.authority {
        command.env("SSL_CERT_FILE", authority);
    }
    let mut test_counts = command::counted(&mut command, command::go_line)?;
    let passed = std::mem::take(&mut test_counts.names);
    for path in scripts("tests/sdk/go", "_test.go")? {
        let text = std::fs::read_to_string(&path)?;
        let file = path.strip_prefix(root())?.display();
        let here = passed.iter().filter(|name| text.contains(&format!("func {name}(")));
        test_counts.names.extend(here.map(|name| format!("{file}::{name}")));
    }
    Ok(test_counts)
}

fn scripts(folder: &str, ending: &str) -> Result<Vec<PathBuf>> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(root().join(folder))? {
        let path = entry?.path();
        if path.to_str().is_some_and(|path| path.ends_with(ending)) {
            found.push(path);
        }
    }
    found.sort();
    Ok(found)
}
