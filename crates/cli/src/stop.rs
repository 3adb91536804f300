//! What ends a server: a signal, the end of its terminal, or the end of the process that started it.

use std::io::IsTerminal;

use anyhow::{Context, Result};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;

/// Resolves once, at whatever comes first.
pub struct Stop {
    interrupt: Signal,
    terminate: Signal,
    /// On a terminal: it was closed. Elsewhere the signal means that keys and certificates are to be read again.
    hangup: Option<Signal>,
    /// Its sender is dropped when the process ends.
    parent: Option<oneshot::Receiver<()>>,
}

impl Stop {
    /// `parent` is the process that started this one, when the server is to end with it. Inside a tokio runtime.
    pub fn new(parent: Option<u32>) -> Result<Stop> {
        let watch =
            |id: u32| parent::watch(id).with_context(|| format!("watching process {id} (--stop-with)"));
        let parent = parent.map(watch).transpose()?;
        let (interrupt, terminate) = (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
        let is_on_terminal = std::io::stdin().is_terminal() && std::io::stderr().is_terminal();
        let hangup = is_on_terminal.then(|| signal(SignalKind::hangup())).transpose()?;
        Ok(Stop { interrupt, terminate, hangup, parent })
    }

    pub async fn wait(mut self) {
        tokio::select! {
            _ = self.interrupt.recv() => {}
            _ = self.terminate.recv() => {}
            () = wait_for_hangup(self.hangup) => {}
            () = ended(self.parent) => tracing::info!("the process that started this server has ended"),
        }
    }
}

async fn wait_for_hangup(hangup: Option<Signal>) {
    match hangup {
        Some(mut hangup) => drop(hangup.recv().await),
        None => std::future::pending().await,
    }
}

async fn ended(parent: Option<oneshot::Receiver<()>>) {
    match parent {
        Some(parent) => drop(parent.await),
        None => std::future::pending().await,
    }
}

#[cfg(target_os = "linux")]
mod parent {
    use anyhow::{Context, Result, bail};
    use rustix::event::{PollFd, PollFlags, poll};
    use rustix::fd::OwnedFd;
    use rustix::io::Errno;
    use rustix::process::{Pid, PidfdFlags, getppid, pidfd_open};
    use tokio::sync::oneshot;

    /// However it ends. A number may be given to another process later, so it counts only while it is the parent's.
    pub fn watch(id: u32) -> Result<oneshot::Receiver<()>> {
        let pid = i32::try_from(id).ok().and_then(Pid::from_raw).context("that is no process")?;
        let process = pidfd_open(pid, PidfdFlags::empty())?;
        if getppid() != Some(pid) {
            bail!("it is not the process that started this one");
        }
        let (alive, ended) = oneshot::channel::<()>();
        let wait = move || {
            wait_until_ended(&process);
            drop(alive);
        };
        std::thread::Builder::new().name("parent".to_owned()).spawn(wait).context("starting a thread")?;
        Ok(ended)
    }

    /// The descriptor of a process becomes readable when it has ended.
    fn wait_until_ended(process: &OwnedFd) {
        let mut waiting = [PollFd::new(process, PollFlags::IN)];
        while let Err(Errno::INTR) = poll(&mut waiting, None) {}
    }
}

#[cfg(not(target_os = "linux"))]
mod parent {
    use anyhow::{Result, bail};
    use tokio::sync::oneshot;

    pub fn watch(_id: u32) -> Result<oneshot::Receiver<()>> {
        bail!("this needs Linux")
    }
}
