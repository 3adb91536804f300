//! Wakers for the next change of a partition, so that no thread has to wait.

use std::collections::HashMap;
use std::task::Waker;

use crate::sync::Mutex;

/// The wakers for the next change of a partition. A registration is used once.
#[derive(Default)]
pub(crate) struct Watchers(Mutex<HashMap<u64, Waker>>);

impl Watchers {
    pub fn register(&self, id: u64, waker: &Waker) {
        self.0.lock().insert(id, waker.clone());
    }

    pub fn remove(&self, id: u64) {
        self.0.lock().remove(&id);
    }

    pub fn wake(&self) {
        let woken = {
            let mut watchers = self.0.lock();
            if watchers.is_empty() {
                return;
            }
            std::mem::take(&mut *watchers)
        };
        woken.into_values().for_each(Waker::wake);
    }
}
