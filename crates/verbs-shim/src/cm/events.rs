//! Events of ids: where they go, and that none is left of an id that is destroyed.

use std::sync::Arc;

use ripstop_types::Result;

use crate::cm::wire::Param;
use crate::cm::{Id, errno};
use crate::engine::cq::Channel;
use crate::log::{self, Subsys};

/// What happened to an id.
pub(crate) struct Event {
    pub(crate) id: Arc<Id>,
    /// The listener, of a request.
    pub(crate) listener: Option<Arc<Id>>,
    /// An `enum rdma_cm_event_type`.
    pub(crate) kind: i32,
    /// 0, a negative error number, or the reason of a rejection.
    pub(crate) status: i32,
    pub(crate) param: Param,
}

impl Event {
    /// Whose event it is: a request is its listener's.
    pub(crate) fn whose(&self) -> &Arc<Id> {
        self.listener.as_ref().unwrap_or(&self.id)
    }

    /// Whether it is an event of this id.
    fn concerns(&self, id: &Arc<Id>) -> bool {
        Arc::ptr_eq(self.whose(), id)
    }
}

/// Where events of ids go.
pub(crate) type Events = Channel<Event>;

/// Where the events of an id go.
pub(super) struct Outlet {
    pub(super) channel: Arc<Events>,
    /// The channel is of this id alone: the program has named none, and its calls wait.
    pub(super) own: bool,
    /// The program has destroyed the id, or nobody has heard of it and nobody will.
    pub(super) closed: bool,
}

impl Outlet {
    /// An outlet to a channel, or to a new one.
    pub(super) fn to(channel: Option<Arc<Events>>) -> Result<Self> {
        let own = channel.is_none();
        let channel = match channel {
            Some(channel) => channel,
            None => Channel::new().map_err(|error| errno(&error))?,
        };
        Ok(Self {
            channel,
            own,
            closed: false,
        })
    }

    /// The channel, if others may use it too.
    pub(super) fn shared(&self) -> Option<Arc<Events>> {
        (!self.own).then(|| Arc::clone(&self.channel))
    }
}

impl Id {
    /// The channel of its events.
    pub(crate) fn events(&self) -> Arc<Events> {
        Arc::clone(&self.outlet.lock().channel)
    }

    /// Gives it another channel, or one of its own, with the events that nobody has taken (`rdma_migrate_id(3)`).
    /// Requests that nobody has taken go along.
    ///
    /// # Errors
    /// Those of [`Channel::new`].
    pub(crate) fn migrate(self: &Arc<Self>, to: Option<Arc<Events>>) -> Result<()> {
        self.redirect(Outlet::to(to)?, None);
        Ok(())
    }

    /// Gives it another outlet. Its request, if nobody has taken it, is posted to its listener's channel first.
    fn redirect(self: &Arc<Self>, to: Outlet, request: Option<(&Events, Event)>) {
        let mut outlet = self.outlet.lock();
        let closed = outlet.closed;
        let moved = outlet.channel.split_off(|event| event.concerns(self));
        *outlet = Outlet { closed, ..to };
        if let Some((channel, request)) = request {
            channel.post(request);
        }
        for event in moved {
            if event.listener.is_none() {
                outlet.channel.post(event);
                continue;
            }
            let asked = Arc::clone(&event.id);
            match Outlet::to(outlet.shared()) {
                Ok(to) => asked.redirect(to, Some((&outlet.channel, event))),
                Err(error) => {
                    log::warn(
                        Subsys::EpCtrl,
                        format_args!("a request is dropped, for want of a channel: {error}"),
                    );
                    asked.close();
                }
            }
        }
    }

    /// Tells the program, unless it has destroyed the id.
    pub(super) fn tell(self: &Arc<Self>, kind: i32, status: i32, param: Param) {
        let outlet = self.outlet.lock();
        if outlet.closed {
            return;
        }
        outlet.channel.post(Event {
            id: Arc::clone(self),
            listener: None,
            kind,
            status,
            param,
        });
    }

    /// Withdraws its events and has none posted any more. Requests that came by it, and that the program has not
    /// heard of, end.
    pub(super) fn withdraw(self: &Arc<Self>) {
        let withdrawn = {
            let mut outlet = self.outlet.lock();
            outlet.closed = true;
            outlet.channel.split_off(|event| event.concerns(self))
        };
        for event in withdrawn {
            if event.listener.is_some() {
                event.id.close();
            }
        }
    }
}
