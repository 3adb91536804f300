//! Stacks as `perf script` prints them, folded and counted.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use super::groups::{Group, group_of, system_call_of};

/// Functions that are printed.
const FUNCTIONS_MAX: usize = 40;

/// One function of a stack.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Frame {
    pub function: String,
    pub in_kernel: bool,
}

#[derive(Default)]
pub struct Stacks {
    /// Innermost frame first, and how often.
    counts: BTreeMap<Vec<Frame>, u64>,
}

impl Stacks {
    pub fn read(data: &Path) -> Result<Stacks> {
        let mut command = Command::new("perf");
        command.args(["script", "--no-inline", "-F", "ip,sym,dso", "-i"]).arg(data);
        let output = command.output().context("running perf script")?;
        ensure!(output.status.success(), "perf script: {}", String::from_utf8_lossy(&output.stderr));
        Ok(Stacks::parse(&String::from_utf8_lossy(&output.stdout)))
    }

    /// Samples are divided by empty lines, frames are `ADDRESS SYMBOL (FILE)`.
    fn parse(text: &str) -> Stacks {
        let mut stacks = Stacks::default();
        for sample in text.split("\n\n") {
            let frames: Vec<Frame> = sample.lines().filter_map(frame).collect();
            if !frames.is_empty() {
                *stacks.counts.entry(frames).or_default() += 1;
            }
        }
        stacks
    }

    pub fn samples(&self) -> u64 {
        self.counts.values().sum()
    }

    /// One line for each stack, outermost function first: what flame graphs are drawn from.
    pub fn folded(&self) -> String {
        let mut text = String::new();
        for (frames, count) in &self.counts {
            let names: Vec<&str> = frames.iter().rev().map(|frame| frame.function.as_str()).collect();
            writeln!(text, "{} {count}", names.join(";")).expect("a text takes more");
        }
        text
    }

    /// Shares by group, of system calls, and of functions with and without what they call.
    pub fn shares(&self) -> String {
        let (mut groups, mut calls) = (BTreeMap::<&str, u64>::new(), BTreeMap::<String, u64>::new());
        let (mut own, mut whole) = (BTreeMap::<&str, u64>::new(), BTreeMap::<&str, u64>::new());
        for (frames, count) in &self.counts {
            let group = group_of(frames);
            *groups.entry(group.name()).or_default() += count;
            if group == Group::SystemCalls {
                *calls.entry(system_call_of(frames)).or_default() += count;
            }
            *own.entry(&frames[0].function).or_default() += count;
            let mut names: Vec<&str> = frames.iter().map(|frame| frame.function.as_str()).collect();
            names.sort_unstable();
            names.dedup();
            for name in names {
                *whole.entry(name).or_default() += count;
            }
        }
        let mut text = String::new();
        self.table(&mut text, "group", groups);
        self.table(&mut text, "in the kernel", calls);
        self.table(&mut text, "function alone", own);
        self.table(&mut text, "function with what it calls", whole);
        text
    }

    fn table<T: AsRef<str>>(&self, text: &mut String, heading: &str, counts: BTreeMap<T, u64>) {
        let mut rows: Vec<(T, u64)> = counts.into_iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
        writeln!(text, "share  {heading}").expect("a text takes more");
        for (name, count) in rows.iter().take(FUNCTIONS_MAX) {
            let share = *count as f64 * 100.0 / self.samples() as f64;
            writeln!(text, "{share:5.1}  {}", name.as_ref()).expect("a text takes more");
        }
        text.push('\n');
    }
}

fn frame(line: &str) -> Option<Frame> {
    let (_, rest) = line.trim().split_once(' ')?;
    let (symbol, file) = rest.rsplit_once(" (")?;
    let in_kernel = file.starts_with("[kernel") || file.starts_with("[guest.kernel");
    Some(Frame { function: short(symbol), in_kernel })
}

/// Without the hash at its end, what generics are made with, and the offset.
fn short(symbol: &str) -> String {
    let symbol = symbol.split("+0x").next().unwrap_or(symbol);
    let symbol = match symbol.rfind("::h") {
        Some(at) if symbol.len() - at == 19 => &symbol[..at],
        _ => symbol,
    };
    symbol.replace(';', ":").chars().take(160).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn samples_are_folded_and_counted_as_their_innermost_known_function() {
        let sample = "          a1 mi_malloc+0x10 (/quire)\n          b2 quire_engine::items::read::h0123456789abcdef (/quire)\n\
                                c3 hyper::serve::h0123456789abcdef (/quire)\n\n";
        let read = "     a1 tcp_recvmsg ([kernel.kallsyms])\n     a2 __x64_sys_recvfrom ([kernel.kallsyms])\n     b1 recv (/libc.so)\n     c3 hyper::serve::h0123456789abcdef (/quire)\n\n";
        let stacks = Stacks::parse(&[sample, sample, read].concat());
        assert_eq!(stacks.samples(), 3);
        let folded = stacks.folded();
        assert!(folded.contains("hyper::serve;quire_engine::items::read;mi_malloc 2\n"), "{folded}");
        let shares = stacks.shares();
        for line in
            [" 66.7  allocator\n", " 33.3  system calls\n", " 33.3  recvfrom\n", "100.0  hyper::serve\n"]
        {
            assert!(shares.contains(line), "{line:?} is not in\n{shares}");
        }
    }
}
