//! The headers of one answer, and the map that is made of them.
//!
//! Nearly all answers have one of a few lists of names. The maps of the first lists that come are kept without their values:
//! a copy of one hashes no name, which is most of the work of filling a map. What is made for one answer lies in one text, whose
//! slices are the values; lists and texts are used again by the next answer of the thread.

use std::cell::RefCell;
use std::ops::Range;
use std::sync::OnceLock;

use bytes::{Bytes, BytesMut};
use hyper::header::{HeaderMap, HeaderName, HeaderValue};

use super::headers::CONSTANT;

/// Lists of names of which the map is kept.
const SHAPES: usize = 16;
const TEXT_BYTES: usize = 512;
const HEADERS: usize = 32;

static MAPS: [OnceLock<HeaderMap>; SHAPES] = [const { OnceLock::new() }; SHAPES];

thread_local! {
    static BUFFERS: RefCell<Buffers> = RefCell::default();
}

/// What answers of a thread leave to the next one.
#[derive(Default)]
struct Buffers {
    list: Vec<(HeaderName, Value)>,
    text: Vec<u8>,
    /// Behind the texts of earlier answers, which are used again when their answers are sent.
    texts: BytesMut,
}

/// Besides the constant ones, in the order in which they are sent. Of a name the last one counts.
pub(super) struct ReplyHeaders {
    list: Vec<(HeaderName, Value)>,
    text: Vec<u8>,
}

enum Value {
    Ready(HeaderValue),
    /// Made for this answer.
    Text(Range<usize>),
}

impl ReplyHeaders {
    pub fn new() -> ReplyHeaders {
        let (mut list, mut text) = BUFFERS.with_borrow_mut(|buffers| {
            (std::mem::take(&mut buffers.list), std::mem::take(&mut buffers.text))
        });
        list.reserve(HEADERS);
        text.reserve(TEXT_BYTES);
        ReplyHeaders { list, text }
    }

    pub fn insert(&mut self, name: HeaderName, value: HeaderValue) {
        self.list.push((name, Value::Ready(value)));
    }

    pub fn write(&mut self, name: HeaderName, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.text.len();
        write(&mut self.text);
        self.list.push((name, Value::Text(start..self.text.len())));
    }

    pub fn write_number(&mut self, names: &[HeaderName], number: u64) {
        let start = self.text.len();
        self.text.extend_from_slice(itoa::Buffer::new().format(number).as_bytes());
        let range = start..self.text.len();
        self.list.extend(names.iter().map(|name| (name.clone(), Value::Text(range.clone()))));
    }

    pub fn remove(&mut self, name: &HeaderName) {
        self.list.retain(|(other, _)| other != name);
    }

    pub fn is(&self, name: &HeaderName, value: &HeaderValue) -> bool {
        let last = self.list.iter().rfind(|(other, _)| other == name);
        matches!(last, Some((_, Value::Ready(found))) if found == value)
    }

    pub fn into_map(self) -> HeaderMap {
        let ReplyHeaders { mut list, mut text } = self;
        let shared = BUFFERS.with_borrow_mut(|buffers| {
            buffers.texts.extend_from_slice(&text);
            buffers.texts.split().freeze()
        });
        let map = known_map(&list, &shared).unwrap_or_else(|| new_map(&list, &shared));
        list.clear();
        text.clear();
        BUFFERS.with_borrow_mut(|buffers| (buffers.list, buffers.text) = (list, text));
        map
    }
}

/// `None`: no map is kept with these names, or a value is not valid in a header.
fn known_map(list: &[(HeaderName, Value)], text: &Bytes) -> Option<HeaderMap> {
    let names = || list.iter().map(|(name, _)| name);
    let has_names = |map: &&HeaderMap| {
        map.len() == CONSTANT.len() + list.len() && map.keys().skip(CONSTANT.len()).eq(names())
    };
    let mut map = MAPS.iter().map_while(OnceLock::get).find(has_names)?.clone();
    for (slot, (_, value)) in map.values_mut().skip(CONSTANT.len()).zip(list) {
        *slot = value.in_text(text)?;
    }
    Some(map)
}

/// Text that is not valid in a header is left out.
fn new_map(list: &[(HeaderName, Value)], text: &Bytes) -> HeaderMap {
    let mut map = HeaderMap::with_capacity(CONSTANT.len() + list.len());
    map.extend(CONSTANT);
    for (name, value) in list {
        if let Some(value) = value.in_text(text) {
            map.insert(name.clone(), value);
        }
    }
    keep(&map, list);
    map
}

fn keep(map: &HeaderMap, list: &[(HeaderName, Value)]) {
    let is_whole = map.keys().skip(CONSTANT.len()).eq(list.iter().map(|(name, _)| name));
    if let (true, Some(place)) = (is_whole, MAPS.iter().find(|place| place.get().is_none())) {
        let mut names = map.clone();
        names.values_mut().skip(CONSTANT.len()).for_each(|value| *value = HeaderValue::from_static(""));
        // Another thread may have been first.
        place.get_or_init(|| names);
    }
}

impl Value {
    fn in_text(&self, text: &Bytes) -> Option<HeaderValue> {
        match self {
            Value::Ready(value) => Some(value.clone()),
            Value::Text(range) => HeaderValue::from_maybe_shared(text.slice(range.clone())).ok(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hyper::header::{CONTENT_TYPE, ETAG};

    fn map(etag: &str) -> HeaderMap {
        let mut headers = ReplyHeaders::new();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("a"));
        headers.write(ETAG, |text| text.extend_from_slice(etag.as_bytes()));
        headers.into_map()
    }

    #[test]
    fn a_kept_map_has_the_values_of_the_answer() {
        let first = map("1");
        assert_eq!(first.len(), CONSTANT.len() + 2);
        for etag in ["1", "22"] {
            let made = map(etag);
            assert!(made[ETAG] == etag && made[CONTENT_TYPE] == "a" && made.len() == first.len());
        }
        assert!(map("bad\n").get(ETAG).is_none() && map("3")[ETAG] == "3");
    }

    #[test]
    fn of_a_name_the_last_one_counts() {
        let mut headers = ReplyHeaders::new();
        headers.write(ETAG, |text| text.push(b'1'));
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("a"));
        headers.insert(ETAG, HeaderValue::from_static("2"));
        assert!(headers.is(&CONTENT_TYPE, &HeaderValue::from_static("a")));
        let map = headers.into_map();
        assert_eq!((map.len(), &map[ETAG]), (CONSTANT.len() + 2, &HeaderValue::from_static("2")));
    }
}
