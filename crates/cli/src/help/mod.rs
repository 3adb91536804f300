//! `quire --help` and `quire help`: commands in groups, topics, completions for shells, manual pages.

mod topics; // texts about more than one command

use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Command;

use crate::output;
use topics::TOPICS;

/// Commands that belong together. Every command that is not hidden is in exactly one group (a test checks it).
const GROUPS: &[(&str, &[&str])] = &[
    ("Serve", &["serve", "emulator"]),
    ("Ask a server", &["query", "connect", "health"]),
    ("Keep data in order", &["model", "links", "profile", "advise", "refactor", "rekey", "demo"]),
    ("Keep it safe", &["backup", "restore", "verify", "keys", "cert"]),
    ("This program", &["help", "completions", "man"]),
];

const EXAMPLES: &str = "\
Examples:
  quire                                     serve ./quire-data on http://127.0.0.1:8081/
  quire emulator                            the same with the emulator's key, http and https
  quire emulator --ephemeral --seed seed/   begin with data, keep nothing
  quire connect python                      a first program
  quire query shop orders 'SELECT * FROM o' --format table";

/// Explains a command or a topic.
#[derive(clap::Args)]
pub struct HelpArguments {
    /// A command, or one of: connections, keys, tls, backup
    topic: Option<String>,
}

/// Prints a script that completes commands and flags in a shell.
#[derive(clap::Args)]
pub struct CompletionsArguments {
    shell: clap_complete::Shell,
}

/// Writes the manual pages.
#[derive(clap::Args)]
pub struct ManArguments {
    /// Directory for them; it is made when it is not there
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
}

/// The command line with its commands in groups.
pub fn grouped(command: Command) -> Command {
    let template = format!(
        "{{about-with-newline}}\n{{usage-heading}} {{usage}}\n\n{}{{all-args}}{{after-help}}",
        groups(&command)
    );
    // The list of commands is in the template.
    let command = command.mut_subcommands(|subcommand| subcommand.hide(true));
    let command = command.override_usage("quire [OPTIONS]\n       quire COMMAND [OPTIONS]");
    command.help_template(template).after_help(format!("{EXAMPLES}\n\n{}", topic_list()))
}

fn groups(command: &Command) -> String {
    let about = |name: &str| {
        let found = command.find_subcommand(name).and_then(Command::get_about);
        found.map(ToString::to_string).unwrap_or_default()
    };
    let mut text = String::new();
    for (heading, names) in GROUPS {
        text += &format!("{heading}:\n");
        for name in *names {
            text += &format!("  {name:<12} {}\n", about(name));
        }
        text.push('\n');
    }
    text
}

fn topic_list() -> String {
    let names: Vec<&str> = TOPICS.iter().map(|topic| topic.name).collect();
    format!("Topics: quire help {}", names.join(" | "))
}

/// `command` is the command line as a whole.
pub fn run(arguments: &HelpArguments, mut command: Command) -> Result<()> {
    let Some(name) = &arguments.topic else {
        return output::print(&grouped(command).render_help().to_string());
    };
    if let Some(topic) = TOPICS.iter().find(|topic| topic.name == name) {
        return output::print(topic.text);
    }
    // Usage lines begin with the name of the program.
    command.build();
    match command.find_subcommand_mut(name) {
        Some(subcommand) => output::print(&subcommand.render_long_help().to_string()),
        None => bail!("there is no command and no topic {name:?}; {}", topic_list()),
    }
}

pub fn completions(arguments: &CompletionsArguments, mut command: Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, "quire", &mut text);
    output::print(&String::from_utf8(text)?)
}

pub fn manual_pages(arguments: &ManArguments, command: Command) -> Result<()> {
    let folder = &arguments.out;
    let doing = || format!("writing the manual pages to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(doing)?;
    clap_mangen::generate_to(command.disable_help_subcommand(true), folder).with_context(doing)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    fn visible() -> Vec<String> {
        let command = crate::Arguments::command();
        let subcommands = command.get_subcommands().filter(|subcommand| !subcommand.is_hide_set());
        subcommands.map(|subcommand| subcommand.get_name().to_owned()).collect()
    }

    #[test]
    fn every_command_is_in_one_group() {
        let mut grouped: Vec<&str> = GROUPS.iter().flat_map(|(_, names)| *names).copied().collect();
        let mut visible = visible();
        grouped.sort_unstable();
        visible.sort_unstable();
        assert_eq!(grouped, visible);
    }

    #[test]
    fn every_command_says_what_it_does_with_an_example() {
        let mut command = crate::Arguments::command();
        command.build();
        for name in visible() {
            let subcommand = command.find_subcommand_mut(&name).expect("is there");
            assert!(subcommand.get_about().is_some(), "{name} has no description");
            let help = subcommand.render_long_help().to_string();
            assert!(help.contains("Example"), "{name} has no example: {help}");
        }
    }

    #[test]
    fn topics_fit_on_a_terminal() {
        for topic in TOPICS {
            for line in topic.text.lines() {
                assert!(line.chars().count() <= 80, "{}: {line}", topic.name);
            }
        }
    }
}
