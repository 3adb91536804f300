use crate::Container;
use crate::api::{Answer, Page, PageRequest};
use crate::shared::Shared;
use quire_sql::Parameters;
pub(crate) fn query_items(
    _shared: &Shared,
    _container: &Container,
    _text: &str,
    _parameters: &Parameters,
    _request: &PageRequest,
) -> Answer<Page> {
    todo!()
}
