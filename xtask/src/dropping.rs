//! A connection that loses requests and answers, always in the same way: for clients that try
//! again.

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering::SeqCst};
use std::thread;

use anyhow::{Context, Result};

/// What becomes of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It does not arrive.
    RequestLost,
    /// It is done, and its answer does not arrive.
    AnswerLost,
    /// It is done, and its answer ends after a few bytes.
    AnswerCut,
}

/// As much of a cut answer as arrives, in bytes: the status line is longer.
const CUT_AFTER: usize = 12;

/// Runs `with` the address of a way to the server, on which these faults happen one after the
/// other to the POSTs whose path ends with `path_end`; everything else passes. Returns its result
/// and the faults that are left.
///
/// # Errors
/// No port is to be had, or the proxy itself failed.
pub fn dropping<T>(
    server: SocketAddr,
    path_end: &str,
    faults: &[Fault],
    with: impl FnOnce(SocketAddr) -> T,
) -> Result<(T, Vec<Fault>)> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let address = listener.local_addr()?;
    let over = AtomicBool::new(false);
    thread::scope(|scope| {
        let proxy = scope.spawn(|| -> io::Result<VecDeque<Fault>> {
            let mut left: VecDeque<Fault> = faults.iter().copied().collect();
            loop {
                let (client, _) = listener.accept()?;
                if over.load(SeqCst) {
                    return Ok(left);
                }
                pass(client, server, path_end, &mut left)?;
            }
        });
        let result = with(address);
        over.store(true, SeqCst);
        // Wakes it; if it has failed, nobody is there to be woken.
        let _nobody = TcpStream::connect(address);
        let left = proxy.join().ok().context("the proxy panicked")?;
        Ok((result, left.context("the proxy failed")?.into()))
    })
}

/// Passes one connection on, or loses what the next fault says.
fn pass(
    mut client: TcpStream,
    server: SocketAddr,
    path_end: &str,
    faults: &mut VecDeque<Fault>,
) -> io::Result<()> {
    let begin = first_line(&mut client)?;
    let line = begin.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let concerned =
        line.starts_with(b"POST ") && line.ends_with(format!("{path_end} HTTP/1.1").as_bytes());
    let fault = if concerned { faults.pop_front() } else { None };
    if fault == Some(Fault::RequestLost) {
        return Ok(());
    }
    let mut upstream = TcpStream::connect(server)?;
    upstream.write_all(&begin)?;
    let (mut from, mut to) = (client.try_clone()?, upstream.try_clone()?);
    thread::scope(|scope| {
        scope.spawn(move || {
            // A client that hangs up is the end of its request.
            let _hung_up = io::copy(&mut from, &mut to);
            to.shutdown(Shutdown::Write)
        });
        let mut head = [0; CUT_AFTER];
        match fault {
            None => drop(io::copy(&mut upstream, &mut client)),
            Some(fault) => {
                // The answer has come, so the work is done.
                upstream.read_exact(&mut head)?;
                if fault == Fault::AnswerCut {
                    client.write_all(&head)?;
                }
            }
        }
        client.shutdown(Shutdown::Both)
    })
    // A client that has hung up first is none of our errors.
    .or_else(|error| match error.kind() {
        io::ErrorKind::NotConnected => Ok(()),
        _ => Err(error),
    })
}

/// What has come once the first line has.
fn first_line(client: &mut TcpStream) -> io::Result<Vec<u8>> {
    let (mut begin, mut room) = (Vec::new(), [0; 1_024]);
    while !begin.contains(&b'\r') {
        let came = client.read(&mut room)?;
        if came == 0 {
            break;
        }
        begin.extend_from_slice(&room[..came]);
    }
    Ok(begin)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a client gets for each of its requests, and what the server saw of them.
    fn check(faults: &[Fault], line: &str, answers: &[&str], seen: usize) {
        let server = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = server.local_addr().unwrap();
        let count = std::sync::atomic::AtomicUsize::new(0);
        let over = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| {
                loop {
                    let (mut stream, _) = server.accept().unwrap();
                    if over.load(SeqCst) {
                        break;
                    }
                    first_line(&mut stream).unwrap();
                    count.fetch_add(1, SeqCst);
                    stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").unwrap();
                }
            });
            let (got, left) = dropping(address, "/m", faults, |proxy| {
                let ask = |_: &&str| {
                    let mut stream = TcpStream::connect(proxy).unwrap();
                    write!(stream, "{line}\r\n\r\n").unwrap();
                    let mut answer = String::new();
                    stream.read_to_string(&mut answer).unwrap();
                    answer
                };
                answers.iter().map(ask).collect::<Vec<_>>()
            })
            .unwrap();
            over.store(true, SeqCst);
            TcpStream::connect(address).unwrap();
            assert_eq!(got, answers);
            let used = if line.starts_with("POST /m ") { faults.len() } else { 0 };
            assert_eq!(left, faults[used..]);
        });
        assert_eq!(count.into_inner(), seen);
    }

    #[test]
    fn faults_come_one_after_the_other_where_they_belong() {
        let whole = "HTTP/1.1 204 No Content\r\n\r\n";
        let faults = [Fault::RequestLost, Fault::AnswerLost, Fault::AnswerCut];
        check(&faults, "POST /m HTTP/1.1", &["", "", "HTTP/1.1 204", whole, whole], 4);
        check(&faults, "GET /m HTTP/1.1", &[whole, whole], 2);
        check(&faults, "POST /n HTTP/1.1", &[whole], 1);
    }
}
