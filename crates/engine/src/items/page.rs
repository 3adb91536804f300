use crate::Container;
use crate::api::{Answer, Page, PageRequest};
use crate::shared::Shared;
pub(crate) fn list_items(_shared: &Shared, _container: &Container, _request: &PageRequest) -> Answer<Page> {
    todo!()
}
