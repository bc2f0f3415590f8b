use ripstop_core::{Address, Handle, Info};
use ripstop_foreign as lib;

use super::table::Object;
use super::{Foreign, RequestKey, table, to_lib};
use crate::subject::{Error, Event, Fid, Result};

impl<M: lib::Threading> Foreign<M> {
    pub(super) fn do_name(&self, fid: Fid) -> Result<Address> {
        let found = match self.table.get(fid)? {
            Object::Pep(pep) => pep.getname()?,
            Object::Ep(ep) => table::read(&ep).getname()?,
            _ => return Err(Error::Missing("name that")),
        };
        self.table.to_address("fi_getname", fid, &found)
    }

    pub(super) fn do_set_name(&self, fid: Fid, addr: &Address) -> Result<()> {
        match self.table.get(fid)? {
            Object::Pep(pep) => Ok(pep.setname(&to_lib(addr))?),
            Object::Ep(ep) => Ok(table::read(&ep).setname(&to_lib(addr))?),
            _ => Err(Error::Missing("name that")),
        }
    }

    pub(super) fn do_reject(&self, pep: Fid, info: &Info, data: &[u8]) -> Result<()> {
        let pep = self.table.pep(pep)?;
        let key = info
            .handle
            .as_ref()
            .and_then(Handle::downcast::<RequestKey>);
        let request = key.and_then(|key| self.table.with(|t| t.requests.remove(&key.0)));
        let request = request.ok_or(Error::Missing("reject what is no request"))?;
        Ok(pep.reject(request, data)?)
    }

    pub(super) fn event(&self, event: lib::Event) -> Event {
        let known = |id| self.table.with(|t| t.ids.get(&id).copied());
        match event {
            lib::Event::ConnReq(request) => {
                let mut info = request.info().attrs();
                let data = request.data().to_vec();
                let pep = request.pep_id();
                let key = self.table.with(|t| {
                    t.requests_seen += 1;
                    t.requests.insert(t.requests_seen, request);
                    t.requests_seen
                });
                info.handle = Some(Handle::new(RequestKey(key)));
                Event::ConnReq {
                    pep: known(pep).unwrap_or(Fid(0)),
                    info: Box::new(info),
                    data,
                }
            }
            lib::Event::Connected { id, data } => Event::Connected {
                ep: known(id).unwrap_or(Fid(0)),
                data,
            },
            lib::Event::Shutdown { id } => Event::Shutdown {
                ep: known(id).unwrap_or(Fid(0)),
            },
            lib::Event::Joined { id } => Event::Joined {
                group: known(id).unwrap_or(Fid(0)),
            },
            lib::Event::Other { event, .. } => Event::Other(event),
        }
    }
}
