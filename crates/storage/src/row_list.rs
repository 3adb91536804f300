//! Rows of one item in one buffer.

use std::fmt;

/// Byte strings, one behind the other in one buffer: two allocations for any number of them.
#[derive(Clone, Default)]
pub struct RowList {
    bytes: Vec<u8>,
    /// Where each begins and ends in `bytes`.
    spans: Vec<(u32, u32)>,
}

impl RowList {
    pub fn with_capacity(rows: usize, bytes: usize) -> RowList {
        RowList { bytes: Vec::with_capacity(bytes), spans: Vec::with_capacity(rows) }
    }

    pub fn push(&mut self, row: &[u8]) {
        self.push_parts([row]);
    }

    /// A row that is written in parts.
    pub fn push_parts<const N: usize>(&mut self, parts: [&[u8]; N]) {
        self.push_written(|bytes| parts.iter().for_each(|part| bytes.extend_from_slice(part)));
    }

    /// A row that `write` appends to the buffer, which it changes in no other way.
    pub fn push_written(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        let start = self.offset();
        write(&mut self.bytes);
        self.spans.push((start, self.offset()));
    }

    fn offset(&self) -> u32 {
        u32::try_from(self.bytes.len()).expect("the rows of a commit have far less than 4 GB")
    }

    pub fn len(&self) -> usize {
        self.spans.len()
    }

    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn iter(&self) -> impl Iterator<Item = &[u8]> + Clone {
        self.spans.iter().map(|span| row(&self.bytes, span))
    }

    /// Bytes of all rows together.
    pub fn row_bytes(&self) -> usize {
        self.spans.iter().map(|(start, end)| (end - start) as usize).sum()
    }

    /// Memory that is in use.
    pub fn size_bytes(&self) -> usize {
        self.bytes.len() + size_of_val(&*self.spans)
    }

    /// Adds the rows of another list.
    pub fn append(&mut self, other: RowList) {
        if self.is_empty() {
            *self = other;
        } else {
            self.extend(other.iter());
        }
    }

    pub fn last(&self) -> Option<&[u8]> {
        self.spans.last().map(|span| row(&self.bytes, span))
    }

    pub fn pop(&mut self) {
        self.spans.pop();
    }

    /// In the order of their bytes, each once.
    pub fn sort_and_dedup(&mut self) {
        let bytes = &self.bytes;
        self.spans.sort_unstable_by(|a, b| row(bytes, a).cmp(row(bytes, b)));
        self.spans.dedup_by(|a, b| row(bytes, a) == row(bytes, b));
    }

    /// Frees the bytes of rows that are gone.
    pub fn compact(&mut self) {
        let mut bytes = Vec::with_capacity(self.row_bytes());
        for span in &mut self.spans {
            let start = bytes.len() as u32;
            bytes.extend_from_slice(row(&self.bytes, span));
            *span = (start, bytes.len() as u32);
        }
        self.bytes = bytes;
    }

    /// Removes a row that is equal, if there is one.
    pub fn remove(&mut self, wanted: &[u8]) -> bool {
        let found = self.iter().position(|row| row == wanted);
        found.map(|at| self.spans.swap_remove(at)).is_some()
    }
}

fn row<'a>(bytes: &'a [u8], &(start, end): &(u32, u32)) -> &'a [u8] {
    &bytes[start as usize..end as usize]
}

impl PartialEq for RowList {
    fn eq(&self, other: &RowList) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for RowList {}

impl fmt::Debug for RowList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<R: AsRef<[u8]>> Extend<R> for RowList {
    fn extend<I: IntoIterator<Item = R>>(&mut self, rows: I) {
        rows.into_iter().for_each(|row| self.push(row.as_ref()));
    }
}

impl<R: AsRef<[u8]>> From<Vec<R>> for RowList {
    fn from(rows: Vec<R>) -> RowList {
        rows.into_iter().collect()
    }
}

impl<R: AsRef<[u8]>> FromIterator<R> for RowList {
    fn from_iter<I: IntoIterator<Item = R>>(rows: I) -> RowList {
        let mut list = RowList::default();
        list.extend(rows);
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_are_sorted_and_taken_out() {
        let mut list: RowList = ["b", "", "a", "b"].into_iter().collect();
        list.sort_and_dedup();
        assert!(list.iter().eq([&b""[..], b"a", b"b"]));
        assert!(list.remove(b"") && !list.remove(b"c"));
        list.compact();
        assert_eq!((list.len(), list.row_bytes(), list.bytes.len()), (2, 2, 2));
        let mut other: RowList = ["x"].into_iter().collect();
        other.append(list);
        assert_eq!(other, ["x", "b", "a"].into_iter().collect());
    }
}
