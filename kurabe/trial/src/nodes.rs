//! One of several nodes: its name and its address.
//!
//! They are set in a guest only, which has no other network than the nodes' own: both are the whole kernel's.

use std::net::IpAddr;

use lab::spec::NodeSpec;

use crate::sys::network::bring_up;
use crate::tool::StepFailure;

/// The interface that a guest has to the other nodes.
const INTERFACE: &str = "eth0";

/// The address of the node of this number.
pub fn address(number: u32) -> [u8; 4] {
    [10, 0, 0, u8::try_from(number).expect("there are few nodes")]
}

pub fn address_text(number: u32) -> String {
    std::net::Ipv4Addr::from(address(number)).to_string()
}

/// The addresses of all nodes, as a command is told them.
pub fn addresses(node: &NodeSpec) -> String {
    let all: Vec<String> = match &*node.addresses {
        [] => (1..=node.nodes).map(address_text).collect(),
        known => known.iter().map(IpAddr::to_string).collect(),
    };
    all.join(",")
}

/// Gives this kernel its name and its address among the nodes.
pub fn connect(node: &NodeSpec) -> Result<(), StepFailure> {
    let failed = |what: &str, error: std::io::Error| {
        StepFailure::of(format!("the network of the nodes: {what}: {error}"))
    };
    rustix::system::sethostname(node.host_name().as_bytes())
        .map_err(|error| failed("setting the host name", error.into()))?;
    bring_up("lo", [127, 0, 0, 1]).map_err(|error| failed("lo", error))?;
    bring_up(INTERFACE, address(node.number)).map_err(|error| failed(INTERFACE, error))
}
