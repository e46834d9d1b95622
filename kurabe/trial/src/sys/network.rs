//! The ioctls that give a network interface its address, from netdevice(7).

use std::io;
use std::net::UdpSocket;
use std::os::fd::AsRawFd;

/// Gives an interface an IPv4 address in a network of 256, and brings it up.
pub fn bring_up(interface: &str, address: [u8; 4]) -> io::Result<()> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    let request = |value: libc::__c_anonymous_ifr_ifru| {
        let mut name = [0; libc::IFNAMSIZ];
        if interface.len() >= name.len() {
            return Err(io::Error::from_raw_os_error(libc::ENAMETOOLONG));
        }
        for (to, from) in name.iter_mut().zip(interface.bytes()) {
            *to = from as libc::c_char;
        }
        Ok(libc::ifreq { ifr_name: name, ifr_ifru: value })
    };
    let internet = |address: [u8; 4]| {
        let mut data = [0; 14];
        for (to, from) in data[2..6].iter_mut().zip(address) {
            *to = from as libc::c_char;
        }
        let ifru_addr = libc::sockaddr { sa_family: libc::AF_INET as _, sa_data: data };
        libc::__c_anonymous_ifr_ifru { ifru_addr }
    };
    let flags = (libc::IFF_UP | libc::IFF_RUNNING) as libc::c_short;
    let requests = [
        (libc::SIOCSIFADDR, internet(address)),
        (libc::SIOCSIFNETMASK, internet([255, 255, 255, 0])),
        (libc::SIOCSIFFLAGS, libc::__c_anonymous_ifr_ifru { ifru_flags: flags }),
    ];
    for (number, value) in requests {
        let request = request(value)?;
        // SAFETY: each of these only reads an ifreq, which lives until the call returns; the socket is open.
        let result = unsafe { libc::ioctl(socket.as_raw_fd(), number as _, &raw const request) };
        if result != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}
