//! What a caller may set.

use quire_value::Value;

#[derive(Clone, Debug, Default)]
pub struct Options {
    /// For how many days the recorded workload stands; the recorded time, at least 1.
    pub stands_for_days: Option<f64>,
    pub thresholds: Thresholds,
    /// Only these.
    pub containers: Option<Vec<String>>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    pub min_items: f64,
    pub min_operations: f64,
    pub min_saved_per_day: f64,
    pub min_saved_share: f64,
    pub days_ahead: f64,
    pub item_limit_bytes: f64,
    pub key_limit_bytes: f64,
    pub key_small_bytes: f64,
    pub view_min_items: f64,
    pub index_min_operations: f64,
    pub index_min_days: f64,
    pub analytics_min_items: f64,
}

impl Default for Thresholds {
    fn default() -> Thresholds {
        Thresholds {
            min_items: 200.0,
            min_operations: 1_000.0,
            min_saved_per_day: 1_000.0,
            min_saved_share: 0.1,
            days_ahead: 90.0,
            item_limit_bytes: 2_097_152.0,
            key_limit_bytes: 20e9,
            key_small_bytes: 1e9,
            view_min_items: 100_000.0,
            index_min_operations: 10_000.0,
            index_min_days: 14.0,
            analytics_min_items: 10_000.0,
        }
    }
}

/// A threshold that is not known, or whose value is no number from 0.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ThresholdError {
    pub name: String,
    pub is_known: bool,
}

impl Thresholds {
    /// Sets what an object of a request names.
    pub fn set(&mut self, name: &str, value: &Value) -> Result<(), ThresholdError> {
        let error = |is_known| ThresholdError { name: name.to_owned(), is_known };
        let place = self.place(name).ok_or_else(|| error(false))?;
        let number = value.as_number().map(|number| number.as_f64()).filter(|number| number.is_finite());
        *place = number.filter(|number| *number >= 0.0).ok_or_else(|| error(true))?;
        Ok(())
    }

    fn place(&mut self, name: &str) -> Option<&mut f64> {
        Some(match name {
            "minItems" => &mut self.min_items,
            "minOperations" => &mut self.min_operations,
            "minSavedPerDay" => &mut self.min_saved_per_day,
            "minSavedShare" => &mut self.min_saved_share,
            "daysAhead" => &mut self.days_ahead,
            "itemLimitBytes" => &mut self.item_limit_bytes,
            "keyLimitBytes" => &mut self.key_limit_bytes,
            "keySmallBytes" => &mut self.key_small_bytes,
            "viewMinItems" => &mut self.view_min_items,
            "indexMinOperations" => &mut self.index_min_operations,
            "indexMinDays" => &mut self.index_min_days,
            "analyticsMinItems" => &mut self.analytics_min_items,
            _ => return None,
        })
    }
}
