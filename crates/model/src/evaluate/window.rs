//! Windows: the newest elements of an array stay in the item, the others go to pages.
//!
//! Everything here is in order of arrival, the oldest first; only the array in the item may be the other way around.
//! Invariant: the pages by number, then the window, have every element once, in order of arrival. With `by`, the window is
//! in the order of that path, and what leaves it goes behind what left it before.

use std::collections::{HashMap, HashSet, VecDeque};

use quire_value::{Object, Value};

use super::{ExpectedPathValue, ItemError, OwnedValue, PutOutcome, SizeLimit, WindowRules};
use crate::declare::{NewestAt, OnWrite};
use crate::pointer::Pointer;

/// Pages that one write may make.
const PAGES_MADE_MAX: usize = 1_000;
/// Pages, from the newest, whose elements are not new when they are sent again.
const PAGES_COMPARED: usize = 2;
const ITEM_ID_BYTES_MAX: usize = 1_023;
const NUMBER_DIGITS: usize = 8;
/// The greatest number that the id of a page can have.
const NUMBER_MAX: u32 = 99_999_999;

/// A page and its elements.
#[derive(Clone, Debug, PartialEq)]
pub struct Page {
    pub number: u32,
    pub elements: Vec<Value>,
}

/// The pages of one item, as they are stored.
pub trait StoredPages {
    type Error: From<ItemError>;
    /// The page with the greatest number below this one, or of all.
    fn newest_below(&self, number: Option<u32>) -> Result<Option<Page>, Self::Error>;
}

/// What a write makes of a window.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WindowWrite {
    /// The array in the item.
    pub array: Vec<Value>,
    /// Pages that are written, in the order of their numbers.
    pub written: Vec<Page>,
    /// Pages that go.
    pub removed: Vec<u32>,
    /// By how many all elements become more.
    pub count_change: i64,
}

/// What a client's write does to a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageChange {
    /// Elements that were taken away.
    pub taken: usize,
    pub is_empty: bool,
}

/// What an element is recognised by.
#[derive(PartialEq, Eq, Hash)]
enum Identity<'e> {
    Key(&'e Value),
    Value(&'e Value),
}

impl WindowRules {
    /// Reads a write of the item: elements that are in the stored window change or stay, others are new, those left out are
    /// deleted. `body` is the item as the client sent it, `stored` as it was. Without an array in the body the elements stay.
    pub fn write<P: StoredPages>(
        &self,
        id: &str,
        stored: Option<&Value>,
        body: &Value,
        pages: &P,
    ) -> Result<WindowWrite, P::Error> {
        let before = self.oldest_first(stored.and_then(|item| self.array(item)).unwrap_or_default());
        let Some(given) = self.client_elements(&before, body)? else {
            let is_blocked = before.is_empty() && self.is_blocked(body);
            return if is_blocked {
                Ok(WindowWrite::default())
            } else {
                self.fit_into_window(id, before, pages)
            };
        };
        if !given.is_empty() {
            self.check_page_ids(id)?;
        }
        self.check_keys(&given)?;
        let (remaining, mut new) = self.matched(&before, given);
        let count_before = before.len();
        if self.window.key.is_some() && !new.is_empty() {
            self.remove_paged(&mut new, pages)?;
        }
        let deleted = count_before - remaining.len();
        let count_change = new.len() as i64 - deleted as i64;
        let mut elements = remaining;
        elements.extend(new);
        Ok(WindowWrite { count_change, ..self.fit_into_window(id, elements, pages)? })
    }

    /// What a stored item is to have, whatever it has: all its elements stay.
    pub fn rebuilt<P: StoredPages>(
        &self,
        id: &str,
        item: &Value,
        pages: &P,
    ) -> Result<WindowWrite, P::Error> {
        self.write(id, Some(item), &without(item, &self.window.path), pages)
    }

    /// As many elements as the item may have, in their order; the others in pages.
    fn fit_into_window<P: StoredPages>(
        &self,
        id: &str,
        mut elements: Vec<Value>,
        pages: &P,
    ) -> Result<WindowWrite, P::Error> {
        self.sort(&mut elements);
        let mut write = WindowWrite::default();
        self.move_to_pages(id, &mut elements, pages, &mut write)?;
        self.refill(&mut elements, pages, &mut write)?;
        write.array = self.as_stored(elements);
        Ok(write)
    }

    /// Whether something that is no object is where the array would be in.
    pub fn is_blocked(&self, item: &Value) -> bool {
        is_blocked(item, &self.window.path)
    }

    /// Where the count would be: nothing can be put there.
    pub fn is_count_blocked(&self, item: &Value) -> bool {
        self.window.count.as_ref().is_some_and(|count| is_blocked(item, count))
    }

    /// The array of an item, and how many elements there are in all, as owned values.
    pub fn owned(&self, array: &[Value], count: i64) -> Vec<OwnedValue> {
        let value = |path: &Pointer, value: Value| OwnedValue {
            owner: self.window.name.clone(),
            path: path.clone(),
            positions: Vec::new(),
            right: ExpectedPathValue::Value(value),
            on_write: self.on_write,
        };
        let count = self.window.count.as_ref().map(|path| value(path, Value::from(count)));
        // The array was read already: what is left to do is to put it in its place.
        let array = OwnedValue {
            on_write: OnWrite::Correct,
            ..value(&self.window.path, Value::from(array.to_vec()))
        };
        [Some(array), count].into_iter().flatten().collect()
    }

    /// Puts the array and the count into an item. An item that never had an array gets none.
    pub fn place(
        &self,
        item: &mut Value,
        stored: Option<&Value>,
        array: &[Value],
        count: i64,
    ) -> Result<Vec<PutOutcome>, ItemError> {
        let mut owned = self.owned(array, count);
        if array.is_empty() && self.window.path.find(item, &[]).is_none() {
            owned.remove(0);
        }
        super::put_owned_values(item, stored, &owned)
    }

    /// Elements in the stored array; nothing where there is none.
    pub fn array(&self, item: &Value) -> Option<Vec<Value>> {
        self.window.path.find(item, &[]).and_then(Value::as_array).map(<[Value]>::to_vec)
    }

    /// How many elements the item says there are in all; nothing where it cannot say.
    pub fn stored_count(&self, item: &Value) -> Option<i64> {
        self.window.count.as_ref()?.find(item, &[])?.as_i64()
    }

    pub fn page_id(&self, item_id: &str, number: u32) -> String {
        format!("{}:{item_id}:{number:0NUMBER_DIGITS$}", self.window.name)
    }

    /// The item and the number in the id of a page of this window.
    pub fn parse_page_id<'i>(&self, id: &'i str) -> Option<(&'i str, u32)> {
        let rest = id.strip_prefix(self.window.name.as_str())?.strip_prefix(':')?;
        let (item_id, number) = rest.rsplit_once(':')?;
        let is_number = number.len() == NUMBER_DIGITS && number.bytes().all(|digit| digit.is_ascii_digit());
        if is_number && !item_id.is_empty() { Some((item_id, number.parse().ok()?)) } else { None }
    }

    /// A page as an item of the pages' container.
    pub fn page_item(&self, item: &Value, item_id: &str, page: &Page) -> Value {
        let mut made = Value::Object(Object::from_iter([("id", self.page_id(item_id, page.number))]));
        self.copy_keys(item, &mut made);
        self.put_page(&mut made, item_id, page);
        made
    }

    /// Puts into a page what it is: whose, which one, and its elements. What else it has stays.
    pub fn put_page(&self, made: &mut Value, item_id: &str, page: &Page) {
        let pages = &self.window.pages;
        let own = [
            (&pages.parent, Value::from(item_id)),
            (&pages.number, Value::from(page.number)),
            (&pages.path, Value::from(page.elements.clone())),
        ];
        own.into_iter().for_each(|(path, value)| self.put(made, path, value));
    }

    /// What a page says of its item: enough to know where it is.
    pub fn parent_item(&self, page: &Value, item_id: &str) -> Value {
        let mut item = Value::Object(Object::from_iter([("id", item_id)]));
        self.copy_keys(page, &mut item);
        item
    }

    fn copy_keys(&self, from: &Value, to: &mut Value) {
        for key in &self.shared_keys {
            if let Some(value) = key.find(from, &[]) {
                self.put(to, key, value.clone());
            }
        }
    }

    fn put(&self, item: &mut Value, path: &Pointer, value: Value) {
        let owned = OwnedValue {
            owner: self.window.name.clone(),
            path: path.clone(),
            positions: Vec::new(),
            right: ExpectedPathValue::Value(value),
            on_write: OnWrite::Correct,
        };
        owned.put(item);
    }

    /// Elements of a stored page.
    pub fn page_elements(&self, page: &Value) -> Vec<Value> {
        self.window
            .pages
            .path
            .find(page, &[])
            .and_then(Value::as_array)
            .map(<[Value]>::to_vec)
            .unwrap_or_default()
    }

    /// Whether a client may replace a page by this: elements may change or go, in their order; nothing else.
    pub fn check_page(&self, stored: &Value, body: &Value) -> Result<PageChange, ItemError> {
        let refused = || ItemError::WindowPage { window: self.window.name.clone() };
        let path = &self.window.pages.path;
        let given = path.find(body, &[]).and_then(Value::as_array).ok_or_else(refused)?;
        let before = self.page_elements(stored);
        let rest_is_same = without(stored, path) == without(body, path);
        let keeps_order = match self.window.key {
            Some(_) => is_subsequence(
                given.iter().map(|element| self.identity(element)),
                before.iter().map(|element| self.identity(element)),
            ),
            // Without a key a changed element cannot be distinguished from another one.
            None => given.len() <= before.len(),
        };
        if !rest_is_same || !keeps_order {
            return Err(refused());
        }
        Ok(PageChange { taken: before.len() - given.len(), is_empty: given.is_empty() })
    }

    /// The client's array, the oldest first. `None`: it says nothing about the window.
    fn client_elements(&self, before: &[Value], body: &Value) -> Result<Option<Vec<Value>>, ItemError> {
        let path = &self.window.path;
        let owned = || ItemError::PathOwned { path: path.to_string(), owner: self.window.name.clone() };
        match path.find(body, &[]) {
            Some(Value::Array(elements)) => Ok(Some(self.oldest_first(elements.clone()))),
            // Nothing that a client wrote is dropped because its place was taken by something else.
            None if !before.is_empty() && is_blocked(body, path) => Err(owned()),
            None => Ok(None),
            Some(_) if self.on_write == OnWrite::Refuse => Err(owned()),
            Some(_) => Ok(None),
        }
    }

    fn check_page_ids(&self, id: &str) -> Result<(), ItemError> {
        if self.page_id(id, 0).len() > ITEM_ID_BYTES_MAX {
            return Err(ItemError::WindowIdTooLong { window: self.window.name.clone() });
        }
        Ok(())
    }

    fn check_keys(&self, elements: &[Value]) -> Result<(), ItemError> {
        let mut keys = HashSet::new();
        let twice = elements.iter().filter_map(|element| self.key(element)).find(|key| !keys.insert(*key));
        match twice {
            None => Ok(()),
            Some(key) => Err(ItemError::WindowKeyTwice {
                window: self.window.name.clone(),
                path: self.window.path.to_string(),
                key: key.to_json(),
            }),
        }
    }

    /// The stored elements that are still there, as they are now, in their order; and the new ones.
    fn matched(&self, before: &[Value], given: Vec<Value>) -> (Vec<Value>, Vec<Value>) {
        let mut places: HashMap<Identity<'_>, VecDeque<usize>> = HashMap::new();
        for (place, element) in before.iter().enumerate() {
            places.entry(self.identity(element)).or_default().push_back(place);
        }
        let mut place_of = |element| places.get_mut(&self.identity(element)).and_then(VecDeque::pop_front);
        let found: Vec<Option<usize>> = given.iter().map(&mut place_of).collect();
        let mut remaining: Vec<Option<Value>> = vec![None; before.len()];
        let mut new = Vec::new();
        for (element, place) in given.into_iter().zip(found) {
            match place {
                Some(place) => remaining[place] = Some(element),
                None => new.push(element),
            }
        }
        (remaining.into_iter().flatten().collect(), new)
    }

    /// Takes out what is in one of the newest pages: it is not new, and stays there as it is.
    fn remove_paged<P: StoredPages>(&self, new: &mut Vec<Value>, pages: &P) -> Result<(), P::Error> {
        let mut below = None;
        for _ in 0..PAGES_COMPARED {
            let Some(page) = pages.newest_below(below)? else { break };
            let keys: HashSet<&Value> =
                page.elements.iter().filter_map(|element| self.key(element)).collect();
            new.retain(|element| self.key(element).is_none_or(|key| !keys.contains(key)));
            below = Some(page.number);
        }
        Ok(())
    }

    /// When there are too many, the oldest go behind what is in pages, until `keep` are left.
    fn move_to_pages<P: StoredPages>(
        &self,
        id: &str,
        elements: &mut Vec<Value>,
        pages: &P,
        write: &mut WindowWrite,
    ) -> Result<(), P::Error> {
        let (keep, slack, size) = (self.window.keep, self.window.slack, self.window.pages.size as usize);
        if elements.len() <= (keep + slack) as usize {
            return Ok(());
        }
        self.check_page_ids(id)?;
        let mut moved = elements.drain(..elements.len() - keep as usize).peekable();
        let stored = pages.newest_below(None)?;
        let mut made = usize::from(stored.is_none());
        let mut page = stored.unwrap_or(Page { number: 0, elements: Vec::new() });
        while moved.peek().is_some() {
            if page.elements.len() >= size {
                made += 1;
                page = Page { number: page.number + 1, elements: Vec::new() };
            }
            if made > PAGES_MADE_MAX || page.number > NUMBER_MAX {
                return Err(self.too_large(id, SizeLimit::Pages).into());
            }
            let room = size - page.elements.len();
            page.elements.extend(moved.by_ref().take(room));
            write.written.push(page.clone());
        }
        Ok(())
    }

    /// Below `keep`, the newest elements in pages come back. An empty page goes, except the last.
    fn refill<P: StoredPages>(
        &self,
        elements: &mut Vec<Value>,
        pages: &P,
        write: &mut WindowWrite,
    ) -> Result<(), P::Error> {
        let keep = self.window.keep as usize;
        let mut below = None;
        while elements.len() < keep {
            let Some(mut page) = pages.newest_below(below)? else { break };
            let is_last = below.is_none();
            below = Some(page.number);
            if page.elements.is_empty() {
                continue;
            }
            let taken = self.newest_of(&mut page.elements, keep - elements.len());
            elements.splice(..0, taken);
            self.sort(elements);
            match page.elements.is_empty() && !is_last {
                true => write.removed.push(page.number),
                false => write.written.push(page),
            }
        }
        write.written.sort_by_key(|page| page.number);
        Ok(())
    }

    /// Takes the newest out of a page: the last, or with `by` the greatest, in their order.
    fn newest_of(&self, elements: &mut Vec<Value>, count: usize) -> Vec<Value> {
        let left = elements.len().saturating_sub(count);
        let Some(by) = &self.window.by else { return elements.split_off(left) };
        let mut order: Vec<usize> = (0..elements.len()).collect();
        order.sort_by(|one, other| by_value(by, &elements[*one]).cmp(by_value(by, &elements[*other])));
        let taken: HashSet<usize> = order[left..].iter().copied().collect();
        let (taken, rest): (Vec<_>, Vec<_>) =
            std::mem::take(elements).into_iter().enumerate().partition(|(place, _)| taken.contains(place));
        *elements = rest.into_iter().map(|(_, element)| element).collect();
        taken.into_iter().map(|(_, element)| element).collect()
    }

    fn too_large(&self, id: &str, limit: SizeLimit) -> ItemError {
        ItemError::MaintainedTooLarge {
            owner: self.window.name.clone(),
            id: id.to_owned(),
            container: self.window.container.clone(),
            limit,
        }
    }

    /// With `by` in its order; equal ones stay in order of arrival.
    fn sort(&self, elements: &mut [Value]) {
        if let Some(by) = &self.window.by {
            elements.sort_by(|one, other| by_value(by, one).cmp(by_value(by, other)));
        }
    }

    /// The oldest first, or back: the same either way.
    fn oldest_first(&self, mut array: Vec<Value>) -> Vec<Value> {
        if self.window.newest == NewestAt::First {
            array.reverse();
        }
        array
    }

    fn as_stored(&self, elements: Vec<Value>) -> Vec<Value> {
        self.oldest_first(elements)
    }

    fn key<'e>(&self, element: &'e Value) -> Option<&'e Value> {
        self.window.key.as_ref()?.find(element, &[])
    }

    /// An element without its key is recognised by its value.
    fn identity<'e>(&self, element: &'e Value) -> Identity<'e> {
        self.key(element).map_or(Identity::Value(element), Identity::Key)
    }
}

fn by_value<'e>(by: &Pointer, element: &'e Value) -> &'e Value {
    by.find(element, &[]).unwrap_or(&Value::Undefined)
}

/// Whether something that is no object is where a parent of the path would be.
fn is_blocked(item: &Value, path: &Pointer) -> bool {
    let parents = (0..path.0.len()).filter_map(|end| Pointer(path.0[..end].to_vec()).find(item, &[]));
    parents.into_iter().any(|parent| parent.as_object().is_none())
}

fn without(item: &Value, path: &Pointer) -> Value {
    let mut rest = item.clone();
    let removed = OwnedValue {
        owner: String::new(),
        path: path.clone(),
        positions: Vec::new(),
        right: ExpectedPathValue::Absent,
        on_write: OnWrite::Correct,
    };
    removed.put(&mut rest);
    rest
}

/// Whether the first are some of the second, in their order.
fn is_subsequence<T: PartialEq>(part: impl Iterator<Item = T>, whole: impl Iterator<Item = T>) -> bool {
    let mut whole = whole;
    let mut part = part;
    part.all(|wanted| whole.any(|found| found == wanted))
}
