//! A limit on log lines: no client can fill a disk by what it makes the server log.
//!
//! Every place in the program (and in its libraries) that logs may write [`LINES_MAX`] lines in [`INTERVAL`]; what it logs
//! beyond is counted and left out. Lines at debug and trace are not limited: who asks for them wants all of them.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use tracing::callsite::Identifier;
use tracing::{Event, Level, Metadata, Subscriber};
use tracing_subscriber::layer::{Context, Layer};

/// Of one place, in one interval.
const LINES_MAX: u32 = 100;
const INTERVAL: Duration = Duration::from_secs(60);
/// The lines of this file, which are not limited: two for each place and interval.
const OWN_TARGET: &str = "quire::log";

#[derive(Default)]
pub struct LogRate {
    /// As many as there are places that log.
    places: Mutex<HashMap<Identifier, LogPlace>>,
}

struct LogPlace {
    since: Instant,
    lines: u32,
    left_out: u64,
}

/// What becomes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LogLine {
    Shown,
    /// The first one of an interval, after one in which so many were left out.
    ShownAgain {
        left_out: u64,
    },
    /// The last one of this interval.
    ShownLast,
    LeftOut,
}

impl LogRate {
    fn admit(&self, place: Identifier, now: Instant) -> LogLine {
        let mut places = self.places.lock();
        let place = places.entry(place).or_insert(LogPlace { since: now, lines: 0, left_out: 0 });
        if now.saturating_duration_since(place.since) >= INTERVAL {
            let left_out = place.left_out;
            *place = LogPlace { since: now, lines: 1, left_out: 0 };
            return if left_out == 0 { LogLine::Shown } else { LogLine::ShownAgain { left_out } };
        }
        place.lines = place.lines.saturating_add(1);
        match place.lines.cmp(&LINES_MAX) {
            std::cmp::Ordering::Less => LogLine::Shown,
            std::cmp::Ordering::Equal => LogLine::ShownLast,
            std::cmp::Ordering::Greater => {
                place.left_out += 1;
                LogLine::LeftOut
            }
        }
    }
}

impl<S: Subscriber> Layer<S> for LogRate {
    fn event_enabled(&self, event: &Event<'_>, _context: Context<'_, S>) -> bool {
        let metadata = event.metadata();
        if *metadata.level() > Level::INFO || metadata.target() == OWN_TARGET {
            return true;
        }
        let line = self.admit(metadata.callsite(), Instant::now());
        write_line(metadata, line);
        line != LogLine::LeftOut
    }
}

fn write_line(metadata: &Metadata<'_>, line: LogLine) {
    let (of, seconds) = (metadata.target(), INTERVAL.as_secs());
    match line {
        LogLine::Shown | LogLine::LeftOut => {}
        LogLine::ShownAgain { left_out } => {
            tracing::warn!(target: OWN_TARGET, of, left_out, "lines like the next one were left out");
        }
        LogLine::ShownLast => {
            tracing::warn!(target: OWN_TARGET, of, seconds, "the next line is the last of its kind for a while");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::sync::Arc;

    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl Write for Written {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0.lock().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn lines(log: impl FnOnce()) -> String {
        let written = Written::default();
        let into = written.clone();
        let builder = tracing_subscriber::fmt().with_max_level(Level::DEBUG).with_ansi(false);
        let subscriber = builder.with_writer(move || into.clone()).finish().with(LogRate::default());
        tracing::subscriber::with_default(subscriber, log);
        String::from_utf8(written.0.lock().clone()).unwrap()
    }

    #[test]
    fn a_place_writes_so_many_lines_and_no_more() {
        let often = LINES_MAX + 50;
        let text = lines(|| {
            for number in 0..often {
                tracing::warn!(number, "loud");
                tracing::debug!(number, "wanted");
            }
            tracing::info!("another place");
        });
        let count = |part: &str| text.lines().filter(|line| line.contains(part)).count();
        assert_eq!(count("loud"), LINES_MAX as usize);
        assert_eq!((count("wanted"), count("another place")), (often as usize, 1));
    }

    #[test]
    fn what_was_left_out_is_counted() {
        let rate = LogRate::default();
        let place = tracing::callsite!(name: "place", kind: tracing::metadata::Kind::EVENT, fields: number);
        let place = Identifier(place);
        let start = Instant::now();
        for _ in 1..LINES_MAX {
            assert_eq!(rate.admit(place.clone(), start), LogLine::Shown);
        }
        assert_eq!(rate.admit(place.clone(), start), LogLine::ShownLast);
        for _ in 0..7 {
            assert_eq!(rate.admit(place.clone(), start + INTERVAL / 2), LogLine::LeftOut);
        }
        assert_eq!(rate.admit(place.clone(), start + INTERVAL), LogLine::ShownAgain { left_out: 7 });
        assert_eq!(rate.admit(place, start + INTERVAL), LogLine::Shown);
    }
}
