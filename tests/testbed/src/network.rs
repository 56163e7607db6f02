//! Links and routes of an instance. One link leads from this machine into the control plane's namespace; a bridge there carries the
//! nodes. There is no route to anywhere else, so nothing in the testbed can reach the world, by mistake or otherwise.

use crate::command::{command, run};
use crate::error::Result;
use crate::guard::CONTROL;
use crate::layout::{Layout, NODES, node_index};
use crate::space::Space;

fn space(layout: Layout, name: &str) -> Space {
    Space::new(name, layout.space_dir(name))
}

/// The control plane's side, before any node.
pub fn control(layout: Layout) -> Result<()> {
    let control = space(layout, CONTROL);
    let (host_link, pid) = (layout.host_link(), control.pid()?.to_string());
    run(&mut command([
        "ip", "link", "add", &host_link, "type", "veth", "peer", "name", "host", "netns", &pid,
    ]))?;
    run(&mut command([
        "ip",
        "address",
        "add",
        &format!("{}/30", layout.host_ip()),
        "dev",
        &host_link,
    ]))?;
    run(&mut command(["ip", "link", "set", &host_link, "up"]))?;
    let (api, inner, services) = (layout.api_ip(), layout.control_ip(), layout.services());
    control.script(&format!(
        "ip link set lo up
         ip address add {api}/30 dev host
         ip link set host up
         ip link add nodes type bridge
         ip address add {inner}/24 dev nodes
         ip link set nodes up
         # A Service's address is rewritten on the way out, but the kernel wants a route before it looks.
         ip route add {services} dev nodes
         echo 1 > /proc/sys/net/ipv4/ip_forward"
    ))?;
    // Tests on this machine may reach pods and Services.
    run(&mut command([
        "ip",
        "route",
        "replace",
        &layout.whole_net(),
        "via",
        &api,
    ]))
    .map(|_| ())
}

/// A node's side; also after the node was killed and came back.
pub fn node(layout: Layout, node: &str) -> Result<()> {
    let (control, space) = (space(layout, CONTROL), space(layout, node));
    let index = node_index(node).unwrap_or(1);
    let (ip, gateway, pods) = (layout.node_ip(index), layout.control_ip(), layout.pod_gateway(index));
    let control_pid = control.pid()?.to_string();
    let in_control = |words: &str| {
        let mut line = vec!["nsenter", "-t", &control_pid, "-n"];
        line.extend(words.split_whitespace());
        run(&mut command(line))
    };
    let _ = in_control(&format!("ip link delete {node}"));
    in_control(&format!(
        "ip link add {node} type veth peer name eth0 netns {}",
        space.pid()?
    ))?;
    in_control(&format!("ip link set {node} master nodes"))?;
    in_control(&format!("ip link set {node} up"))?;
    in_control(&format!("ip route replace {} via {ip}", layout.pod_net(index)))?;
    let mut text = format!(
        "ip link set lo up
         ip address add {ip}/24 dev eth0
         ip link set eth0 up
         ip route add default via {gateway}
         ip link add pods type bridge
         ip address add {pods}/24 dev pods
         ip link set pods up
         echo 1 > /proc/sys/net/ipv4/ip_forward
         # Traffic between pods of one node must meet the firewall and find its way back from a Service.
         echo 1 > /proc/sys/net/bridge/bridge-nf-call-iptables\n"
    );
    for other in NODES.iter().filter(|n| **n != node) {
        let other = node_index(other).unwrap_or(1);
        text += &format!("ip route add {} via {}\n", layout.pod_net(other), layout.node_ip(other));
    }
    space.script(&text).map(|_| ())
}
