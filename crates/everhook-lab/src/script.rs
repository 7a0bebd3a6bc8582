//! Which request gets which reply.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Mutex, PoisonError};

use crate::reply::Reply;
use crate::request::Request;

/// Gives every request its reply.
pub struct Behaviour(Box<dyn Fn(&Request) -> Reply + Send + Sync>);

/// Replies by path, in order: the first request to a path gets the first reply, and so on. The last
/// one is repeated.
#[derive(Clone, Debug)]
pub struct Script {
    paths: HashMap<String, Vec<Reply>>,
    otherwise: Reply,
}

impl Behaviour {
    /// As this function says. It is called when a request has been read and recorded.
    pub fn by(reply: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self(Box::new(reply))
    }

    pub(crate) fn reply(&self, request: &Request) -> Reply {
        self.0(request)
    }
}

impl fmt::Debug for Behaviour {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Behaviour")
    }
}

/// The same reply to every request.
impl From<Reply> for Behaviour {
    fn from(reply: Reply) -> Self {
        Self::by(move |_| reply.clone())
    }
}

impl From<Script> for Behaviour {
    fn from(Script { paths, otherwise }: Script) -> Self {
        let turns = Mutex::new(HashMap::<String, usize>::new());
        Self::by(move |request| {
            let path = request.target().split('?').next().unwrap_or_default();
            let Some(replies) = paths.get(path) else { return otherwise.clone() };
            let mut turns = turns.lock().unwrap_or_else(PoisonError::into_inner);
            let turn = turns.entry(path.to_owned()).or_default();
            let reply = replies.get(*turn).or(replies.last()).unwrap_or(&otherwise);
            *turn += 1;
            reply.clone()
        })
    }
}

impl Script {
    /// A script that gives this reply to whatever path it does not name.
    pub fn otherwise(otherwise: Reply) -> Self {
        Self { paths: HashMap::new(), otherwise }
    }

    /// The same, with these replies in order for this path (without a query).
    #[must_use]
    pub fn on(mut self, path: &str, replies: impl IntoIterator<Item = Reply>) -> Self {
        self.paths.insert(path.to_owned(), replies.into_iter().collect());
        self
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn replies_go_by_path_in_order_and_the_last_is_repeated() {
        let script = Script::otherwise(Reply::status(404))
            .on("/flaky", [Reply::status(500), Reply::status(200)])
            .on("/none", []);
        let behaviour = Behaviour::from(script);
        for (target, status) in [
            ("/flaky", 500),
            ("/other", 404),
            ("/flaky?x=/flaky", 200),
            ("/flaky", 200),
            ("/none", 404),
        ] {
            let head = format!("POST {target} HTTP/1.1\r\n\r\n").into();
            let body = bytes::Bytes::new();
            let request = Request { connection: 0, nth: 0, at: Duration::ZERO, head, body };
            assert_eq!(behaviour.reply(&request), Reply::status(status), "{target}");
        }
    }
}
