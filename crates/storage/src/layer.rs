//! Storages over another one: they count, delay, watch or break calls before the storage below does them.

use crate::{
    Caps, Commit, CommitError, Committed, KeyRange, PartitionId, Position, Removal, Snapshot, Space, Storage,
    StorageError, Token,
};

/// A [`Storage`] that passes every call to another one, except for the methods that it defines itself.
///
/// Name the storage below in `below`, define what the layer changes, and the layer is a `Storage`.
pub trait StorageLayer: Send + Sync {
    /// The storage that does what this layer does not.
    fn below(&self) -> &dyn Storage;

    fn caps(&self) -> &Caps {
        self.below().caps()
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        self.below().snapshot()
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        self.below().commit(commit)
    }
    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        self.below().position(partition)
    }
    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        self.below().fence(partition, epoch)
    }
    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        self.below().resolve(token)
    }
    fn is_writable(&self) -> bool {
        self.below().is_writable()
    }
    fn statistics(&self) -> Vec<(&'static str, u64)> {
        self.below().statistics()
    }
    fn compact(&self, space: Space, range: KeyRange) {
        self.below().compact(space, range);
    }
    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        self.below().remove_range(space, range)
    }
    fn close(&self) -> Result<(), StorageError> {
        self.below().close()
    }
}

impl<L: StorageLayer> Storage for L {
    fn caps(&self) -> &Caps {
        StorageLayer::caps(self)
    }
    fn snapshot(&self) -> Result<Box<dyn Snapshot>, StorageError> {
        StorageLayer::snapshot(self)
    }
    fn commit(&self, commit: Commit) -> Result<Committed, CommitError> {
        StorageLayer::commit(self, commit)
    }
    fn position(&self, partition: PartitionId) -> Result<Option<Position>, StorageError> {
        StorageLayer::position(self, partition)
    }
    fn fence(&self, partition: PartitionId, epoch: u64) -> Result<Position, StorageError> {
        StorageLayer::fence(self, partition, epoch)
    }
    fn resolve(&self, token: Token) -> Result<Option<Committed>, StorageError> {
        StorageLayer::resolve(self, token)
    }
    fn is_writable(&self) -> bool {
        StorageLayer::is_writable(self)
    }
    fn statistics(&self) -> Vec<(&'static str, u64)> {
        StorageLayer::statistics(self)
    }
    fn compact(&self, space: Space, range: KeyRange) {
        StorageLayer::compact(self, space, range);
    }
    fn remove_range(&self, space: Space, range: &KeyRange) -> Result<Removal, StorageError> {
        StorageLayer::remove_range(self, space, range)
    }
    fn close(&self) -> Result<(), StorageError> {
        StorageLayer::close(self)
    }
}
