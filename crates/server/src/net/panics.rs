//! Panics, caught where they cost least: a bug costs one answer, not a thread, a connection or the process.

use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::task::Poll;

/// Runs the work until it ends or panics. By reference, since the future of a request is large and every move copies it.
pub(crate) async fn catch_panic<T>(mut work: Pin<&mut impl Future<Output = T>>) -> Result<T, String> {
    std::future::poll_fn(|context| {
        match std::panic::catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(context))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => Poll::Ready(Ok(output)),
            Err(panic) => Poll::Ready(Err(reason(&*panic))),
        }
    })
    .await
}

fn reason(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "no reason given".to_owned())
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use super::*;

    #[tokio::test]
    async fn a_panic_becomes_a_reason() {
        assert_eq!(catch_panic(pin!(async { 7 })).await, Ok(7));
        let panicking = pin!(async {
            tokio::task::yield_now().await;
            panic!("nothing there");
        });
        assert_eq!(catch_panic(panicking).await.err().as_deref(), Some("nothing there"));
    }
}
