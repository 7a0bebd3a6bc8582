//! One GET over TLS, for what receiving needs of the network: a certificate, or the confirmation of
//! a subscription. It goes through the same guarded connector and trusts the public roots; nothing
//! of it is pooled, because it is seldom.

use std::fmt;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use everhook_domain::attempt::ErrorClass;
use everhook_domain::endpoint_url::EndpointUrl;
use http::header::{HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderValue, Request, Response, Uri};

use super::body::{Body, CutOff};
use super::exchange::{Carrier, Exchange};
use super::failure::{Failure, Phase};
use super::pool::Destination;
use super::tls::Trust;
use super::{Course, HttpSender};

/// Why something was not fetched, in words for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NotFetched(String);

impl fmt::Display for NotFetched {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFetched {}

impl From<Failure> for NotFetched {
    fn from(failure: Failure) -> Self {
        Self(failure.detail)
    }
}

impl HttpSender {
    /// The whole body of a 2xx answer to a GET of this `https` URL, of at most `bytes_max` bytes,
    /// all of it within `timeout`. A redirect is an answer, never followed.
    ///
    /// # Errors
    /// [`NotFetched`].
    pub async fn fetch(
        &self,
        url: &str,
        bytes_max: usize,
        timeout: Duration,
    ) -> Result<Bytes, NotFetched> {
        let url = EndpointUrl::parse(url, true).map_err(|why| NotFetched(why.to_string()))?;
        let course = Course::default();
        let mut deadline = pin!(tokio::time::sleep(timeout));
        let (mut carrier, response) = tokio::select! {
            biased;
            () = &mut deadline => return Err(Failure::timeout(course.phase(), timeout).into()),
            answer = self.get(url, &course) => answer?,
        };
        if !response.status().is_success() {
            return Err(NotFetched(format!("the answer was {}", response.status().as_u16())));
        }
        tokio::select! {
            biased;
            () = &mut deadline => {
                let detail = format!("the answer did not end within {} ms", timeout.as_millis());
                Err(NotFetched(detail))
            }
            body = carrier.drive(whole(response.into_body(), bytes_max)) => body,
        }
    }

    /// The head of the answer, on a connection of its own where HTTP/1.1 is spoken.
    async fn get(
        &self,
        url: EndpointUrl,
        course: &Course,
    ) -> Result<(Carrier, Response<Body>), Failure> {
        let request = request(&url, self.settings.user_agent.clone())?;
        let destination = Destination { url: Arc::new(url), trust: Trust::Public };
        let place = (&destination, None);
        let mut carrier = self.openings.carrier(&self.dialer, &self.pool, place, course).await?;
        course.enter(Phase::Waiting);
        match carrier.exchange(request).await {
            Exchange::Answered(response) => Ok((carrier, *response)),
            Exchange::Unprocessed(failure)
            | Exchange::ClosedUnheard(failure)
            | Exchange::Failed(failure) => Err(failure),
            Exchange::Unsent => {
                let detail = "the connection was closed before the request was written";
                Err(Failure::new(ErrorClass::Reset, detail))
            }
        }
    }
}

fn request(url: &EndpointUrl, user_agent: HeaderValue) -> Result<Request<Bytes>, Failure> {
    let unusable = || Failure::new(ErrorClass::Configuration, "the URL is not legal in HTTP");
    let path = PathAndQuery::try_from(url.path_and_query()).map_err(|_| unusable())?;
    let host = HeaderValue::from_str(url.authority()).map_err(|_| unusable())?;
    let mut request = Request::new(Bytes::new());
    *request.uri_mut() = Uri::from(path);
    request.headers_mut().insert(HOST, host);
    request.headers_mut().insert(USER_AGENT, user_agent);
    Ok(request)
}

async fn whole(mut body: Body, bytes_max: usize) -> Result<Bytes, NotFetched> {
    let mut bytes = Vec::new();
    while let Some(piece) = body.piece().await {
        let piece = piece.map_err(|CutOff| NotFetched("the answer was cut off".to_owned()))?;
        bytes.extend_from_slice(&piece);
        if bytes.len() > bytes_max {
            return Err(NotFetched(format!("the answer is larger than {bytes_max} bytes")));
        }
    }
    Ok(Bytes::from(bytes))
}
