//! Ids of one process that connect over loopback.

use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr};

use super::*;
use crate::device::Choice;
use crate::engine::cq::Channel;
use crate::net::Kind;
use crate::sys::{IBV_QP_AV, IBV_QP_QKEY, IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS, RDMA_UDP_QKEY};
use crate::sys::{
    RDMA_CM_EVENT_ADDR_RESOLVED, RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_REJECTED,
};

/// What a hang takes.
const HANG: Duration = Duration::from_secs(60);

/// Long enough for what must not happen to happen.
const WHILE: Duration = Duration::from_millis(150);

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn device() -> Arc<Engine> {
    Engine::of(Choice {
        kind: Kind::Tcp,
        ip: HERE,
    })
    .expect("a device")
}

fn channel() -> Arc<Events> {
    Channel::new().expect("a pipe")
}

/// Waits for so many events, and takes them.
fn events(channel: &Events, count: usize) -> VecDeque<Event> {
    let since = Instant::now();
    let mut found = VecDeque::new();
    while found.len() < count {
        assert!(since.elapsed() < HANG, "{count} events do not come");
        found.extend(channel.split_off(|_| true));
        thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(found.len(), count);
    found
}

/// Waits for an event of this kind, which must be the only one.
fn event(channel: &Events, kind: i32) -> Event {
    let event = events(channel, 1).pop_front().expect("an event");
    assert_eq!(event.kind, kind);
    event
}

fn quiet(channel: &Events) -> bool {
    channel.split_off(|_| true).is_empty()
}

/// An id that listens for connections.
fn listener(device: &Arc<Engine>, channel: &Arc<Events>) -> (Arc<Id>, SocketAddr) {
    listener_for(Space::Connections, device, channel)
}

/// An id that listens.
fn listener_for(
    space: Space,
    device: &Arc<Engine>,
    channel: &Arc<Events>,
) -> (Arc<Id>, SocketAddr) {
    let id = Id::new(Arc::clone(device), space, Some(Arc::clone(channel))).expect("an id");
    id.bind(SocketAddr::new(HERE, 0)).expect("an address");
    id.listen().expect("a listener");
    let address = id.addresses().0.expect("an address");
    (id, address)
}

/// An id that has asked for a connection.
fn client(device: &Arc<Engine>, channel: &Arc<Events>, peer: SocketAddr) -> Arc<Id> {
    client_for(Space::Connections, device, channel, peer)
}

/// An id that has asked.
fn client_for(
    space: Space,
    device: &Arc<Engine>,
    channel: &Arc<Events>,
    peer: SocketAddr,
) -> Arc<Id> {
    let id = Id::new(Arc::clone(device), space, Some(Arc::clone(channel))).expect("an id");
    id.resolve(None, peer).expect("a way");
    event(channel, RDMA_CM_EVENT_ADDR_RESOLVED);
    id.connect(Param::default()).expect("a request");
    id
}

/// Two ids that are connected: the one that has accepted, and the one that has asked.
fn connected(device: &Arc<Engine>, channels: [&Arc<Events>; 2]) -> [Arc<Id>; 2] {
    let [server, own] = channels;
    let (listener, address) = listener(device, server);
    let asking = client(device, own, address);
    let asked = event(server, RDMA_CM_EVENT_CONNECT_REQUEST).id;
    asked.accept(Param::default()).expect("a reply");
    event(own, RDMA_CM_EVENT_CONNECT_RESPONSE);
    asking.establish().expect("a connection");
    event(server, RDMA_CM_EVENT_ESTABLISHED);
    listener.close();
    [asked, asking]
}

/// An id of a request whose peer is a stream of the test, and its reader.
fn asked_by_stream(
    device: &Arc<Engine>,
    channel: &Arc<Events>,
    patience: Duration,
) -> (Arc<Id>, TcpStream) {
    let socket = TcpListener::bind(SocketAddr::new(HERE, 0)).expect("a socket");
    let address = socket.local_addr().expect("an address");
    let peer = TcpStream::connect(address).expect("a stream");
    let stream = Arc::new(socket.accept().expect("a stream").0);
    let listener = Id::new(
        Arc::clone(device),
        Space::Connections,
        Some(Arc::clone(channel)),
    )
    .expect("an id");
    let request = listener.frame(Verb::Request, Param::default());
    let id = listener
        .asked(Arc::clone(&stream), &request)
        .expect("an id");
    event(channel, RDMA_CM_EVENT_CONNECT_REQUEST);
    let reader = Arc::clone(&id);
    thread::spawn(move || reader.read(&stream, Some(patience)));
    (id, peer)
}

#[test]
fn each_side_ends_a_connection_once() {
    let (device, server, own) = (device(), channel(), channel());
    let [asked, asking] = connected(&device, [&server, &own]);
    asking.disconnect().expect("a connection");
    event(&own, RDMA_CM_EVENT_DISCONNECTED);
    event(&server, RDMA_CM_EVENT_DISCONNECTED);
    // The peer was first.
    asked.disconnect().expect("a connection that has ended");
    for id in [&asked, &asking] {
        assert_eq!(id.disconnect(), Err(Errno::EINVAL));
        id.close();
    }
    let idle = Id::new(device, Space::Connections, Some(Arc::clone(&own))).expect("an id");
    assert_eq!(idle.disconnect(), Err(Errno::EINVAL));
    thread::sleep(WHILE);
    assert!(quiet(&own) && quiet(&server));
}

#[test]
fn requests_of_a_listener_that_is_destroyed_end_with_it() {
    let (device, server, own) = (device(), channel(), channel());
    let (id, address) = listener(&device, &server);
    let asking = client(&device, &own, address);
    let request = event(&server, RDMA_CM_EVENT_CONNECT_REQUEST);
    let asked = Arc::clone(&request.id);
    server.post(request);
    id.close();
    assert!(quiet(&server));
    // Its peer hears of the end, and the program nothing any more.
    event(&own, RDMA_CM_EVENT_UNREACHABLE);
    asked.tell(RDMA_CM_EVENT_CONNECT_ERROR, 0, Param::default());
    assert!(quiet(&server));
    // The address is free, and a request that was on its way is not told.
    let socket = TcpListener::bind(address).expect("an address that is free");
    let stream = TcpStream::connect(address).expect("a stream");
    let request = id.frame(Verb::Request, Param::default());
    let late = id.asked(Arc::new(stream), &request).map(drop);
    assert_eq!(late, Err(Errno::ECONNABORTED));
    assert!(quiet(&server));
    asking.close();
    drop(socket);
}

#[test]
fn nothing_is_told_of_an_id_that_is_destroyed() {
    let (device, server, own) = (device(), channel(), channel());
    let [asked, asking] = connected(&device, [&server, &own]);
    asked.tell(RDMA_CM_EVENT_DISCONNECTED, 0, Param::default());
    asked.close();
    event(&own, RDMA_CM_EVENT_DISCONNECTED);
    asked.tell(RDMA_CM_EVENT_DISCONNECTED, 0, Param::default());
    assert!(quiet(&server));
    // It is not told of on another channel either.
    asked.migrate(Some(Arc::clone(&own))).expect("a channel");
    asked.tell(RDMA_CM_EVENT_DISCONNECTED, 0, Param::default());
    assert!(quiet(&own));
    asking.close();
}

#[test]
fn a_reply_to_an_id_that_is_destroyed_changes_nothing() {
    let (device, own) = (device(), channel());
    let socket = TcpListener::bind(SocketAddr::new(HERE, 0)).expect("a socket");
    let id = client(&device, &own, socket.local_addr().expect("an address"));
    let (stream, _) = socket.accept().expect("a stream");
    Frame::read(&stream).expect("a request");
    id.close();
    let param = Param {
        qp_num: 5,
        ..Param::default()
    };
    let reply = id.frame(Verb::Reply, param);
    Arc::clone(&id).answered(&stream, reply);
    assert_eq!(id.state.lock().remote.1, 0);
    assert!(quiet(&own));
}

#[test]
fn requests_move_to_another_channel_before_their_own_events() {
    let (device, server, own) = (device(), channel(), channel());
    let (id, address) = listener(&device, &server);
    let asking = client(&device, &own, address);
    let request = event(&server, RDMA_CM_EVENT_CONNECT_REQUEST);
    asking.close();
    let error = event(&server, RDMA_CM_EVENT_CONNECT_ERROR);
    server.post(request);
    server.post(error);
    let next = channel();
    id.migrate(Some(Arc::clone(&next))).expect("a channel");
    assert!(quiet(&server));
    let moved = events(&next, 2);
    assert_eq!(
        [moved[0].kind, moved[1].kind],
        [RDMA_CM_EVENT_CONNECT_REQUEST, RDMA_CM_EVENT_CONNECT_ERROR]
    );
    assert!(Arc::ptr_eq(&moved[0].id, &moved[1].id));
    moved.into_iter().for_each(|event| next.post(event));
    // Where calls wait, each id has a channel of its own.
    id.migrate(None).expect("a channel");
    assert!(quiet(&next));
    let asked = event(&id.events(), RDMA_CM_EVENT_CONNECT_REQUEST).id;
    event(&asked.events(), RDMA_CM_EVENT_CONNECT_ERROR);
    id.close();
}

#[test]
fn a_peer_that_never_gets_ready_is_given_up() {
    let (device, channel) = (device(), channel());
    // The program accepts within one look at the peer, which does not count.
    let patience = WHILE / 4;
    let (id, peer) = asked_by_stream(&device, &channel, patience);
    // The program takes its time.
    thread::sleep(WHILE);
    assert!(quiet(&channel));
    let since = Instant::now();
    id.accept(Param::default()).expect("a reply");
    let error = event(&channel, RDMA_CM_EVENT_CONNECT_ERROR);
    assert!(error.status < 0 && since.elapsed() >= patience);
    assert_eq!(id.disconnect(), Err(Errno::EINVAL));
    drop(peer);
}

#[test]
fn a_peer_that_is_ready_may_be_silent() {
    let (device, channel) = (device(), channel());
    let (id, peer) = asked_by_stream(&device, &channel, WHILE / 5);
    id.accept(Param::default()).expect("a reply");
    let ready = id.frame(Verb::Ready, Param::default());
    ready.write(&peer).expect("room");
    event(&channel, RDMA_CM_EVENT_ESTABLISHED);
    thread::sleep(WHILE);
    assert!(quiet(&channel));
    drop(peer);
    event(&channel, RDMA_CM_EVENT_DISCONNECTED);
}

#[test]
fn a_request_for_datagrams_is_answered_and_over() {
    let (device, server, own) = (device(), channel(), channel());
    let (id, address) = listener_for(Space::Datagrams, &device, &server);
    let asking = client_for(Space::Datagrams, &device, &own, address);
    let asked = event(&server, RDMA_CM_EVENT_CONNECT_REQUEST).id;
    assert_eq!(asked.space, Space::Datagrams);
    let param = Param {
        qp_num: 5,
        private: b"here".to_vec(),
        ..Param::default()
    };
    asked.accept(param).expect("a reply");
    let answer = event(&own, RDMA_CM_EVENT_ESTABLISHED);
    assert_eq!(
        (answer.param.qp_num, answer.param.qkey),
        (5, Some(RDMA_UDP_QKEY))
    );
    assert_eq!(answer.param.private, b"here");
    assert_eq!(asking.remote(), (device.gid(), 5));
    for id in [&asked, &asking] {
        assert_eq!(id.disconnect(), Err(Errno::EINVAL));
    }
    // Neither side hears more of it.
    thread::sleep(WHILE);
    assert!(quiet(&server) && quiet(&own));
    // One that is refused.
    let refused = client_for(Space::Datagrams, &device, &own, address);
    let request = event(&server, RDMA_CM_EVENT_CONNECT_REQUEST).id;
    request.reject(b"no".to_vec()).expect("a rejection");
    let answer = event(&own, RDMA_CM_EVENT_UNREACHABLE);
    assert_eq!((answer.status, &answer.param.private[..]), (2, &b"no"[..]));
    [id, asked, asking, request, refused]
        .iter()
        .for_each(Id::close);
}

#[test]
fn requests_of_the_other_port_space_are_rejected() {
    let (device, server, own) = (device(), channel(), channel());
    let spaces = [
        (
            Space::Connections,
            Space::Datagrams,
            RDMA_CM_EVENT_UNREACHABLE,
        ),
        (Space::Datagrams, Space::Connections, RDMA_CM_EVENT_REJECTED),
    ];
    for (there, here, told) in spaces {
        let (id, address) = listener_for(there, &device, &server);
        let asking = client_for(here, &device, &own, address);
        event(&own, told);
        assert!(quiet(&server));
        id.close();
        asking.close();
    }
}

#[test]
fn queue_pairs_of_datagrams_need_no_peer() {
    let (device, own) = (device(), channel());
    let id = Id::new(device, Space::Datagrams, Some(own)).expect("an id");
    let masks = [IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS].map(|state| {
        let (attr, mask) = id.qp_attr(state).expect("attributes");
        assert_eq!((attr.qp_state, attr.qkey), (state, RDMA_UDP_QKEY));
        mask & (IBV_QP_AV | IBV_QP_QKEY)
    });
    assert_eq!(masks, [IBV_QP_QKEY, 0, 0]);
}
