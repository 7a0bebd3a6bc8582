//! From addresses to one connection: only allowed ones are tried, and the next one is tried when
//! one fails or takes long (RFC 8305).

use std::collections::VecDeque;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use everhook_domain::address::{AddressGuard, Blocked};
use everhook_domain::attempt::ErrorClass;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;

use super::failure::Failure;

/// How long an address has before the next one is tried beside it (RFC 8305 §5).
const STAGGER: Duration = Duration::from_millis(250);
/// The most addresses of a name that are tried.
const ADDRESSES_MAX: usize = 8;

/// Connects to the first of these addresses that answers. Each is judged right before, so that no
/// answer of a name server leads where no request may go.
pub(super) async fn connect(
    guard: &AddressGuard,
    addresses: &[IpAddr],
    port: u16,
) -> Result<TcpStream, Failure> {
    let mut waiting = interleaved(addresses);
    let mut connecting = FuturesUnordered::new();
    let mut first_failure = None;
    let mut blocked = None;
    loop {
        if let Some(address) = next_allowed(guard, &mut waiting, &mut blocked) {
            connecting.push(TcpStream::connect(SocketAddr::new(address, port)));
        } else if connecting.is_empty() {
            let failure = first_failure
                .or(blocked.map(refused))
                .unwrap_or_else(|| Failure::new(ErrorClass::Dns, "the host's name has no address"));
            return Err(failure);
        }
        // A failure lets the next address start at once, and so does slowness.
        let stagger = async {
            if waiting.is_empty() {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep(STAGGER).await;
        };
        tokio::select! {
            biased;
            Some(connected) = connecting.next() => match connected {
                Ok(stream) => {
                    // Small requests go out at once; where that cannot be set they still go out.
                    stream.set_nodelay(true).ok();
                    return Ok(stream);
                }
                Err(error) => {
                    first_failure.get_or_insert(Failure::connecting(&error));
                }
            },
            () = stagger => {}
        }
    }
}

fn next_allowed(
    guard: &AddressGuard,
    waiting: &mut VecDeque<IpAddr>,
    blocked: &mut Option<Blocked>,
) -> Option<IpAddr> {
    while let Some(address) = waiting.pop_front() {
        match guard.judge(address) {
            Ok(()) => return Some(address),
            Err(why) => {
                blocked.get_or_insert(why);
            }
        }
    }
    None
}

/// Says what kind of address it is and not which: who may choose a name for an endpoint may not
/// learn what our name servers know of it. The operator finds it in the log.
fn refused(Blocked { address, reason }: Blocked) -> Failure {
    tracing::debug!(%address, "an endpoint leads to {reason}, which may not be connected to");
    let detail = format!("the endpoint leads to {reason}; security.allow_targets can allow it");
    Failure::new(ErrorClass::Blocked, detail)
}

/// The families in turns, beginning with that of the first address (RFC 8305 §4).
fn interleaved(addresses: &[IpAddr]) -> VecDeque<IpAddr> {
    let first_is_v4 = addresses.first().is_some_and(IpAddr::is_ipv4);
    let (same, other): (Vec<_>, Vec<_>) =
        addresses.iter().copied().partition(|address| address.is_ipv4() == first_is_v4);
    let mut order = VecDeque::with_capacity(addresses.len());
    let (mut same, mut other) = (same.into_iter(), other.into_iter());
    while order.len() < ADDRESSES_MAX {
        let (one, two) = (same.next(), other.next());
        if one.is_none() && two.is_none() {
            break;
        }
        order.extend(one);
        order.extend(two);
    }
    order.truncate(ADDRESSES_MAX);
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn families_take_turns() {
        let parse = |list: &str| -> Vec<IpAddr> {
            list.split_whitespace().map(|text| text.parse().expect("an address")).collect()
        };
        for (addresses, expected) in [
            ("", ""),
            ("10.0.0.1", "10.0.0.1"),
            ("::1 ::2 10.0.0.1 10.0.0.2", "::1 10.0.0.1 ::2 10.0.0.2"),
            ("10.0.0.1 10.0.0.2 10.0.0.3 ::1", "10.0.0.1 ::1 10.0.0.2 10.0.0.3"),
            ("::1 ::2 ::3 ::4 ::5 ::6 ::7 ::8 ::9", "::1 ::2 ::3 ::4 ::5 ::6 ::7 ::8"),
        ] {
            assert_eq!(Vec::from(interleaved(&parse(addresses))), parse(expected), "{addresses}");
        }
    }

    #[tokio::test]
    async fn case_015_a_blocked_address_is_never_connected_to() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("bound").port();
        let address = [IpAddr::from([127, 0, 0, 1])];
        let failure = connect(&AddressGuard::default(), &address, port).await.expect_err("blocked");
        assert_eq!(failure.class, ErrorClass::Blocked);
        let detail =
            "the endpoint leads to a loopback address; security.allow_targets can allow it";
        assert_eq!(failure.detail, detail);
        let allowed = AddressGuard::new(vec!["127.0.0.1".parse().expect("a block")]);
        assert!(connect(&allowed, &address, port).await.is_ok());
        assert!(listener.accept().await.is_ok(), "exactly one connection came");
    }

    #[tokio::test]
    async fn case_110_the_allowed_address_is_used_and_the_blocked_one_skipped() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("bound").port();
        let addresses = ["fe80::1".parse().expect("an address"), IpAddr::from([127, 0, 0, 1])];
        let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().expect("a block")]);
        assert!(connect(&guard, &addresses, port).await.is_ok());
    }

    #[tokio::test]
    async fn case_080_the_next_address_is_tried_when_one_refuses() {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("bind");
        let port = listener.local_addr().expect("bound").port();
        let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().expect("a block")]);
        // The port is only taken on the second address.
        let addresses = [IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1])];
        assert!(connect(&guard, &addresses, port).await.is_ok());
        let failure = connect(&guard, &addresses[..1], port).await.expect_err("nothing there");
        assert_eq!(failure.class, ErrorClass::Refused);
    }

    #[tokio::test(start_paused = true)]
    #[expect(clippy::disallowed_methods, reason = "tokio's paused time is the time here")]
    async fn case_080_an_address_that_swallows_everything_is_not_waited_for() {
        let listening = tokio::net::TcpSocket::new_v4().expect("a socket");
        listening.bind("127.0.0.2:0".parse().expect("an address")).expect("bind");
        // It has room for so few that wait to be accepted; whoever comes then hears nothing.
        let swallowing = listening.listen(1).expect("listen");
        let swallows = swallowing.local_addr().expect("bound");
        let mut waiting = Vec::new();
        while let Ok(Ok(stream)) = tokio::time::timeout(STAGGER, TcpStream::connect(swallows)).await
        {
            waiting.push(stream);
            assert!(waiting.len() < 100, "it takes everybody");
        }
        let port = swallows.port();
        let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await.expect("bind");
        let guard = AddressGuard::new(vec!["127.0.0.0/8".parse().expect("a block")]);
        let addresses = [IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 1])];
        let began = tokio::time::Instant::now();
        let stream = connect(&guard, &addresses, port).await.expect("the other one");
        assert_eq!(stream.peer_addr().expect("connected"), listener.local_addr().expect("bound"));
        assert!(began.elapsed() <= 2 * STAGGER, "{:?}", began.elapsed());
    }
}
