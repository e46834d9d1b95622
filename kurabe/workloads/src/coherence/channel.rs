//! How nodes wait for each other: by TCP, the first node in the middle. A node that is gone, or says nothing for
//! [`WAIT_MAX`], is named. Whoever does not know the nodes' secret is no node, and is passed over.

use std::io::{ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::time::{Duration, Instant};

use super::{Meet, QuestionNode};

/// How long a node may take between two meetings.
const WAIT_MAX: Duration = Duration::from_secs(120);
/// How long the first node may take to be there.
const CONNECT_MAX: Duration = Duration::from_secs(60);
const CONNECT_INTERVAL: Duration = Duration::from_millis(20);
/// Where the first node listens.
pub const PORT: u16 = 7070;
/// Where a node finds the secret that it shares with the others, which is empty in a network of their own.
pub const SECRET_VARIABLE: &str = "KURABE_SECRET";
/// How long one who connects may take to say who it is.
const HELLO_MAX: Duration = Duration::from_secs(2);
/// A node that failed is to say why before the others say that it is gone.
const LET_SPEAK: Duration = Duration::from_secs(2);

/// A node's connections: the first node has one to each other node, in their order; each other one to the first.
pub struct Channel {
    member: QuestionNode,
    peers: Vec<TcpStream>,
}

impl Channel {
    /// Connects a node with the others, whose first one has this address.
    pub fn open(
        member: QuestionNode,
        first: IpAddr,
        port: u16,
        secret: &str,
    ) -> Result<Channel, String> {
        let place = SocketAddr::from((first, port));
        let failed = |error: std::io::Error| format!("the nodes' channel, {place}: {error}");
        let peers = if member.number == 1 {
            accept(member, place, secret)?
        } else {
            let mut stream = connect(place).map_err(failed)?;
            let hello = [&[own_byte(member.number)], secret.as_bytes()].concat();
            stream.write_all(&hello).map_err(failed)?;
            vec![stream]
        };
        for peer in &peers {
            peer.set_nodelay(true).map_err(failed)?;
            peer.set_read_timeout(Some(WAIT_MAX)).map_err(failed)?;
        }
        Ok(Channel { member, peers })
    }

    fn number_of(&self, peer: usize) -> u32 {
        if self.member.number == 1 { peer as u32 + 2 } else { 1 }
    }

    fn hear(&mut self, peer: usize, heard: &mut [u8]) -> Result<(), String> {
        let number = self.number_of(peer);
        self.peers[peer].read_exact(heard).map_err(|error| match error.kind() {
            ErrorKind::WouldBlock | ErrorKind::TimedOut => {
                format!("node {number} said nothing for {} s", WAIT_MAX.as_secs())
            }
            _ => gone(number, &error),
        })
    }
}

fn own_byte(number: u32) -> u8 {
    u8::try_from(number).expect("there are few nodes")
}

fn gone(number: u32, error: &std::io::Error) -> String {
    std::thread::sleep(LET_SPEAK);
    format!("node {number} is gone: {error}")
}

fn accept(member: QuestionNode, place: SocketAddr, secret: &str) -> Result<Vec<TcpStream>, String> {
    let failed = |error: std::io::Error| format!("the nodes' channel, {place}: {error}");
    let listener = TcpListener::bind(place).map_err(failed)?;
    listener.set_nonblocking(true).map_err(failed)?;
    let mut peers: Vec<Option<TcpStream>> = (2..=member.nodes).map(|_| None).collect();
    let until = Instant::now() + CONNECT_MAX;
    while let Some(missing) = peers.iter().position(Option::is_none) {
        match listener.accept() {
            Ok((mut stream, _)) => {
                stream.set_nonblocking(false).map_err(failed)?;
                stream.set_read_timeout(Some(HELLO_MAX)).map_err(failed)?;
                let mut hello = vec![0; 1 + secret.len()];
                let is_node =
                    stream.read_exact(&mut hello).is_ok() && hello[1..] == *secret.as_bytes();
                let place = usize::from(hello[0]).checked_sub(2).filter(|_| is_node);
                if let Some(peer) = place.and_then(|place| peers.get_mut(place)) {
                    *peer = Some(stream);
                }
            }
            Err(error) if error.kind() != ErrorKind::WouldBlock => return Err(failed(error)),
            Err(_) if Instant::now() >= until => {
                return Err(format!("node {} did not come to the questions", missing + 2));
            }
            Err(_) => std::thread::sleep(CONNECT_INTERVAL),
        }
    }
    Ok(peers.into_iter().flatten().collect())
}

fn connect(place: SocketAddr) -> std::io::Result<TcpStream> {
    let until = Instant::now() + CONNECT_MAX;
    loop {
        match TcpStream::connect_timeout(&place, CONNECT_MAX) {
            Err(_) if Instant::now() < until => std::thread::sleep(CONNECT_INTERVAL),
            connected => return connected,
        }
    }
}

impl Meet for Channel {
    fn meet(&mut self, said: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut all = vec![said.to_vec(); self.member.nodes as usize];
        if self.member.number != 1 {
            self.peers[0].write_all(said).map_err(|error| gone(1, &error))?;
            let mut heard = all.concat();
            self.hear(0, &mut heard)?;
            all.iter_mut().zip(heard.chunks(said.len())).for_each(|(one, heard)| {
                one.copy_from_slice(heard);
            });
            return Ok(all);
        }
        for peer in 0..self.peers.len() {
            self.hear(peer, &mut all[peer + 1])?;
        }
        let told = all.concat();
        for (peer, stream) in self.peers.iter_mut().enumerate() {
            stream.write_all(&told).map_err(|error| gone(peer as u32 + 2, &error))?;
        }
        Ok(all)
    }
}
