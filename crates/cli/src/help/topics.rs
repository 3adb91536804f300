//! What concerns more than one command.

pub struct Topic {
    pub name: &'static str,
    pub text: &'static str,
}

pub const TOPICS: &[Topic] = &[
    Topic { name: "connections", text: include_str!("topics/connections.txt") },
    Topic { name: "keys", text: include_str!("topics/keys.txt") },
    Topic { name: "tls", text: include_str!("topics/tls.txt") },
    Topic { name: "backup", text: include_str!("topics/backup.txt") },
];
