//! Locks and condition variables of group commit: those of `parking_lot`. Only the feature `schedules`, which the explorer of
//! schedules sets (ADR 26), puts others in their place.

#[cfg(feature = "schedules")]
mod explored; // the same under the explorer
#[cfg(feature = "schedules")]
pub(crate) mod races; // known races that can be put back

#[cfg(feature = "schedules")]
pub(crate) use explored::{Condvar, Mutex};
#[cfg(not(feature = "schedules"))]
pub(crate) use parking_lot::{Condvar, Mutex};

#[cfg(all(test, not(feature = "schedules")))]
mod tests {
    use std::any::TypeId;

    /// What releases use is what it says: nothing is wrapped.
    #[test]
    fn the_types_are_those_of_parking_lot() {
        assert_eq!(TypeId::of::<crate::sync::Mutex<u8>>(), TypeId::of::<parking_lot::Mutex<u8>>());
        assert_eq!(TypeId::of::<crate::sync::Condvar>(), TypeId::of::<parking_lot::Condvar>());
    }
}
