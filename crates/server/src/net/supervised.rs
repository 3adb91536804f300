//! Tasks that run as long as the server does: started again after a panic. `ready` reports one that is down.
//!
//! What `quire_engine`'s workers are for threads, these are for tasks of the runtime. Both are reported in the same way.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use quire_engine::{WorkerState, WorkerStatus};
use tokio::task::JoinHandle;

use crate::net::panics::catch_panic;

/// Between a panic and the next start.
const RESTART_PAUSE: Duration = Duration::from_millis(500);

/// The tasks of a server and their states.
#[derive(Clone, Default)]
pub(crate) struct Tasks(Arc<Mutex<Vec<WorkerStatus>>>);

impl Tasks {
    pub fn status(&self) -> Vec<WorkerStatus> {
        self.0.lock().clone()
    }

    fn add(&self, name: &'static str) -> usize {
        let mut tasks = self.0.lock();
        let state = WorkerState::Running;
        tasks.push(WorkerStatus { name, state, failures: 0, panics: 0, failing_parts: 0, last_error: None });
        tasks.len() - 1
    }

    fn panicked(&self, task: usize, reason: String) {
        let task = &mut self.0.lock()[task];
        (task.failures, task.panics) = (task.failures + 1, task.panics + 1);
        (task.state, task.last_error) = (WorkerState::Down, Some(reason));
    }

    fn started(&self, task: usize) {
        let task = &mut self.0.lock()[task];
        (task.state, task.last_error) = (WorkerState::Running, None);
    }
}

/// Runs what `make` makes until it ends by itself.
pub(crate) fn supervised<F>(
    tasks: &Tasks,
    name: &'static str,
    make: impl Fn() -> F + Send + 'static,
) -> JoinHandle<()>
where
    F: Future<Output = ()> + Send,
{
    let (tasks, task) = (tasks.clone(), tasks.add(name));
    tokio::spawn(async move {
        while let Err(reason) = catch_panic(pin!(make())).await {
            tracing::error!(task = name, reason, "a task of the server panicked and is started again");
            tasks.panicked(task, reason);
            tokio::time::sleep(RESTART_PAUSE).await;
            tasks.started(task);
        }
    })
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_started_again() {
        let (tasks, starts) = (Tasks::default(), Arc::new(AtomicUsize::new(0)));
        let task = supervised(&tasks, "test", {
            let starts = starts.clone();
            move || {
                let number = starts.fetch_add(1, Ordering::Relaxed);
                async move {
                    tokio::task::yield_now().await;
                    assert!(number >= 2, "on purpose");
                }
            }
        });
        while tasks.status()[0].state == WorkerState::Running {
            tokio::task::yield_now().await;
        }
        assert!(tasks.status()[0].last_error.is_some());
        task.await.expect("ends by itself");
        let status = &tasks.status()[0];
        assert_eq!((status.state, status.panics), (WorkerState::Running, 2));
        assert_eq!(starts.load(Ordering::Relaxed), 3);
    }
}
