//! NFS 4: the kernel's server exports the directory below, and every node mounts it from there, the one that serves
//! included.
//!
//! In guests only, whose network and server are nobody else's. The server is set up through the files that its
//! kernel has for rpc.nfsd and rpc.mountd; without these programs, since kurabe knows every client before it comes.
//! NFS 3 needs them, and rpcbind and statd too, so it is not here.

use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::path::Path;
use std::time::{Duration, Instant};

use super::{Rights, Service, Upper, UpperLocation, words};
use crate::locks::LockCalls;
use crate::nodes;
use crate::sys::network::bring_up;
use crate::tool::{StepFailure, Toolbox, failed};

pub static NFS: Upper = Upper {
    name: "nfs",
    summary: "NFS 4.2, 4.1 or 4.0 by the kernel's server and client; on several nodes the first one serves",
    tools: &[],
    kernel_name: "nfs",
    options: &[ASYNC],
    takes_number: false,
    rights: Rights::Roots,
    daemon: None,
    directories: |_| Vec::new(),
    prepare: |_, _| Ok(()),
    mount,
    service: Some(Service {
        modules: &["nfsd", "nfsv4", "virtio_net"],
        mount_options: &MOUNT_OPTIONS,
        begin,
        wait,
        end,
        locks: LOCKS,
    }),
};

/// What a client asks for that the server may grant for longer, and what the server wants back: delegations.
const LOCKS: LockCalls = LockCalls {
    requests: &[
        "nfsv4:nfs4_xdr_enc_open",
        "nfsv4:nfs4_xdr_enc_open_noattr",
        "nfsv4:nfs4_xdr_enc_lock",
    ],
    revocations: &["nfsv4:nfs4_callback_recall"],
};

/// The word by which the server answers before anything is durable: `async` of exports(5).
const ASYNC: &str = "--async";

/// What nfs(5) has and names no other machine, file or version.
const MOUNT_OPTIONS: [&str; 32] = [
    "ac",
    "acdirmax=",
    "acdirmin=",
    "acregmax=",
    "acregmin=",
    "actimeo=",
    "cto",
    "hard",
    "lookupcache=",
    "max_connect=",
    "nconnect=",
    "nfsvers=4.0",
    "nfsvers=4.1",
    "nfsvers=4.2",
    "noac",
    "nocto",
    "nordirplus",
    "nosharecache",
    "rdirplus",
    "retrans=",
    "rsize=",
    "sharecache",
    "soft",
    "softerr",
    "softreval",
    "sync",
    "timeo=",
    "vers=4.0",
    "vers=4.1",
    "vers=4.2",
    "write=",
    "wsize=",
];

const PORT: u16 = 2049;
const THREADS: &str = "8";
const SERVER: &str = "/proc/fs/nfsd";
/// The name of all clients together.
const CLIENTS: &str = "kurabe";
/// When the kernel would ask rpc.mountd again.
const NEVER: &str = "2147483647";
/// The export that clients find at `/`.
const ROOT_EXPORT: &str = "0";
/// Flags of an export: any port, no subtree check, a number in its handles.
const FLAGS: u32 = 0x2 | 0x400 | 0x2000;
const FLAG_ASYNC: u32 = 0x10;
/// The user `nobody`.
const NOBODY: &str = "65534";

/// How long a node waits for the one that serves.
const WAIT_MAX: Duration = Duration::from_secs(120);
const LOOK_INTERVAL: Duration = Duration::from_millis(20);

fn own_address(place: &UpperLocation<'_>) -> [u8; 4] {
    place.member.map_or(Ipv4Addr::LOCALHOST.octets(), |member| nodes::address(member.number))
}

fn server_address(place: &UpperLocation<'_>) -> [u8; 4] {
    place.member.map_or(Ipv4Addr::LOCALHOST.octets(), |_| nodes::address(1))
}

fn mount(place: &UpperLocation<'_>) -> Vec<String> {
    let (server, own) = (Ipv4Addr::from(server_address(place)), Ipv4Addr::from(own_address(place)));
    let (server_option, own_option) = (format!("addr={server}"), format!("clientaddr={own}"));
    let options = place.mount_options(&["vers=4.2", &server_option, &own_option]);
    // Without mount.nfs, which would look up what is known here.
    let mut words = words(&["mount", "-i", "-n", "-t", "nfs", "-o"]);
    words.extend([options, format!("{server}:/"), place.point_text()]);
    words
}

fn write(path: &str, text: &str) -> Result<(), StepFailure> {
    fs::write(path, text).map_err(failed(format_args!("the NFS server: {path}: {}", text.trim())))
}

fn begin(place: &UpperLocation<'_>) -> Result<(), StepFailure> {
    let own = Path::new(SERVER);
    if !own.join("threads").exists() {
        rustix::mount::mount("nfsd", own, "nfsd", rustix::mount::MountFlags::empty(), None)
            .map_err(failed(format_args!("the NFS server: {SERVER}")))?;
    }
    if place.member.is_none() {
        bring_up("lo", own_address(place)).map_err(failed("the NFS server: lo"))?;
    }
    let clients = match place.member {
        None => vec![own_address(place)],
        Some(member) => (1..=member.nodes).map(nodes::address).collect(),
    };
    for client in clients {
        let client = Ipv4Addr::from(client);
        let line = format!("nfsd {client} {NEVER} {CLIENTS}\n");
        write("/proc/net/rpc/auth.unix.ip/channel", &line)?;
    }
    let is_async = place.layer.options.iter().any(|word| word == ASYNC);
    let flags = FLAGS | if is_async { FLAG_ASYNC } else { 0 };
    let path = place.below.display();
    let line = format!("{CLIENTS} {path} {NEVER} {flags} {NOBODY} {NOBODY} {ROOT_EXPORT}\n");
    write("/proc/net/rpc/nfsd.export/channel", &line)?;
    // Kind 1 is a handle with the number of its export.
    let line = format!("{CLIENTS} 1 \\x00000000 {NEVER} {path}\n");
    write("/proc/net/rpc/nfsd.fh/channel", &line)?;
    let steps = [
        ("versions", "-2 -3 +4 +4.1 +4.2\n".to_string()),
        ("portlist", format!("tcp {PORT}\n")),
        ("threads", THREADS.to_string()),
        // There is no client from before, for which it would wait 90 s.
        ("v4_end_grace", "Y".to_string()),
    ];
    steps.iter().try_for_each(|(name, text)| write(&format!("{SERVER}/{name}"), text))
}

fn wait(place: &UpperLocation<'_>, tools: &mut Toolbox) -> Result<(), StepFailure> {
    let server = SocketAddr::from((server_address(place), PORT));
    let until = Instant::now() + WAIT_MAX;
    loop {
        match TcpStream::connect_timeout(&server, WAIT_MAX) {
            Ok(_) => return Ok(()),
            Err(error) if Instant::now() >= until => {
                return Err(StepFailure::of(format!("the NFS server {server}: {error}")));
            }
            Err(_) => tools.pause(LOOK_INTERVAL)?,
        }
    }
}

fn end() -> Result<(), StepFailure> {
    write(&format!("{SERVER}/threads"), "0")?;
    // What is exported is held until it is forgotten.
    for cache in ["nfsd.fh", "nfsd.export", "auth.unix.ip"] {
        write(&format!("/proc/net/rpc/{cache}/flush"), NEVER)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use lab::contender::Layer;
    use lab::spec::NodeSpec;

    use super::*;
    use crate::upper::tests::checked;

    #[test]
    fn every_node_mounts_what_the_first_one_serves() {
        let options = vec!["nocto".to_string(), "actimeo=60".to_string()];
        let layer = Layer { name: "nfs".into(), mount_options: options, ..Layer::default() };
        let member = NodeSpec { number: 2, nodes: 3, ..NodeSpec::default() };
        let (below, point, password) = (Path::new("/b"), Path::new("/m"), Path::new("/p"));
        let place = UpperLocation { below, point, layer: &layer, password, member: Some(&member) };
        let line = mount(&place).join(" ");
        let options = "vers=4.2,addr=10.0.0.1,clientaddr=10.0.0.2,nocto,actimeo=60";
        assert_eq!(line, format!("mount -i -n -t nfs -o {options} 10.0.0.1:/ /m"));
        let alone = mount(&UpperLocation { member: None, ..place }).join(" ");
        assert!(alone.contains("addr=127.0.0.1,clientaddr=127.0.0.1"), "{alone}");
    }

    #[test]
    fn no_option_leads_to_another_machine_or_version() {
        for (text, said) in [
            ("nfs @ vers=3 over ext4 on debian", "no mount option of nfs is called 'vers=3'"),
            ("nfs @ addr=10.1.1.1 over ext4 on debian", "'addr=10.1.1.1'"),
            ("nfs @ clientaddr=1.1.1.1 over ext4 on debian", "'clientaddr=1.1.1.1'"),
            ("nfs --export=x over ext4 on debian", "there are --async"),
            (
                "nfs over nfs over ext4 on 2 debian",
                "2 nodes have a file system alone, or with nfs over it",
            ),
            ("nfs over ext4 over luks on 2 debian", "2 nodes have"),
            ("nfs over ext4 aged git:2 on 2 debian", "2 nodes have"),
            ("lump over nfs over ext4 on 2 debian", "2 nodes have"),
        ] {
            let error = checked(text).expect_err(text);
            assert!(error.contains(said), "{text}: {error}");
        }
        for text in ["nfs --async over xfs on 2 debian", "gocryptfs over nfs over ext4 on debian"] {
            checked(text).expect(text);
        }
    }
}
