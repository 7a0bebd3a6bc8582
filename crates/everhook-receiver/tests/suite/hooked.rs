//! A store in front of a store, which asks before and after each verb.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use everhook_receiver::EventKey;
use everhook_receiver::store::{Claimed, Receipt, Store, StoreError, Terms, Token};

/// Says whether the verb goes on, given a step as `claim:before`.
pub(crate) type Hook = Arc<
    dyn Fn(&'static str) -> Pin<Box<dyn Future<Output = Result<(), StoreError>> + Send>>
        + Send
        + Sync,
>;

pub(crate) struct Hooked {
    pub(crate) inner: Arc<dyn Store>,
    pub(crate) hook: Hook,
}

impl std::fmt::Debug for Hooked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Hooked")
    }
}

/// A hook that fails at a step while `fails` says so.
pub(crate) fn failing(fails: impl Fn(&'static str) -> bool + Send + Sync + 'static) -> Hook {
    Arc::new(move |step| {
        let failed = fails(step);
        Box::pin(async move {
            if failed { Err(StoreError(format!("planted at {step}"))) } else { Ok(()) }
        })
    })
}

#[async_trait]
impl Store for Hooked {
    async fn claim(
        &self,
        key: &EventKey,
        token: Token,
        terms: Terms,
    ) -> Result<Claimed, StoreError> {
        (self.hook)("claim:before").await?;
        let claimed = self.inner.claim(key, token, terms).await?;
        (self.hook)("claim:after").await?;
        Ok(claimed)
    }

    async fn renew(
        &self,
        key: &EventKey,
        token: Token,
        lease: Duration,
    ) -> Result<bool, StoreError> {
        (self.hook)("renew:before").await?;
        let renewed = self.inner.renew(key, token, lease).await?;
        (self.hook)("renew:after").await?;
        Ok(renewed)
    }

    async fn finish(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        (self.hook)("finish:before").await?;
        let finished = self.inner.finish(key, token).await?;
        (self.hook)("finish:after").await?;
        Ok(finished)
    }

    async fn release(&self, key: &EventKey, token: Token) -> Result<bool, StoreError> {
        (self.hook)("release:before").await?;
        let released = self.inner.release(key, token).await?;
        (self.hook)("release:after").await?;
        Ok(released)
    }

    async fn receipt(&self, key: &EventKey) -> Result<Option<Receipt>, StoreError> {
        self.inner.receipt(key).await
    }

    async fn prune(&self, keep: Duration, limit: u32) -> Result<u64, StoreError> {
        self.inner.prune(keep, limit).await
    }
}
