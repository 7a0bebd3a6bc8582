//! What is shared by reference is what it refers to.

use std::sync::Arc;

use async_trait::async_trait;
use everhook_domain::version::Verdict;

use super::{Ask, Listed, NoPage, Objects, Page, Pages, Progress, ProgressError, ProgressStore};

#[async_trait]
impl<P: Pages + ?Sized> Pages for Arc<P> {
    type Object = P::Object;
    type Error = P::Error;

    async fn page(&self, ask: &Ask) -> Result<Page<Self::Object>, NoPage<Self::Error>> {
        (**self).page(ask).await
    }

    async fn one(&self, id: &str) -> Result<Option<Listed<Self::Object>>, Self::Error> {
        (**self).one(id).await
    }
}

#[async_trait]
impl<T: Send + 'static, O: Objects<T> + ?Sized> Objects<T> for Arc<O> {
    type Error = O::Error;

    async fn apply(&self, listed: Listed<T>) -> Result<Verdict, Self::Error> {
        (**self).apply(listed).await
    }

    async fn held(&self) -> Result<Vec<String>, Self::Error> {
        (**self).held().await
    }

    async fn missing(&self, id: &str) -> Result<(), Self::Error> {
        (**self).missing(id).await
    }
}

#[async_trait]
impl<S: ProgressStore + ?Sized> ProgressStore for Arc<S> {
    async fn load(&self, name: &str) -> Result<Progress, ProgressError> {
        (**self).load(name).await
    }

    async fn begin(
        &self,
        name: &str,
        progress: &Progress,
        unseen: &[String],
    ) -> Result<(), ProgressError> {
        (**self).begin(name, progress, unseen).await
    }

    async fn save(
        &self,
        name: &str,
        progress: &Progress,
        seen: &[String],
    ) -> Result<(), ProgressError> {
        (**self).save(name, progress, seen).await
    }

    async fn unseen(&self, name: &str, limit: u32) -> Result<Vec<String>, ProgressError> {
        (**self).unseen(name, limit).await
    }
}
