//! The functions of `JniServer.java`, which `NativeServer.java` describes.

use std::time::Duration;

use jni::sys::{self, jint, jlong, jobject};

use super::{ServerObject, calls};
use crate::entry::{Buffer, entries, quietly, reply};

fn pause(nanos: jlong) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(0))
}

entries! {
    Java_io_github_fodopv_JniServer_pvCreate(flags: jint, length_max: jint, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::pv_create(flags, length_max, input, out))
    }

    Java_io_github_fodopv_JniServer_pvPost(pv: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::pv_post(&*ServerObject::pv(pv)?, input, out))
    }

    Java_io_github_fodopv_JniServer_pvPostFields(pv: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::pv_post_fields(&*ServerObject::pv(pv)?, input, out))
    }

    Java_io_github_fodopv_JniServer_pvCurrent(pv: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::pv_current(&*ServerObject::pv(pv)?, out);
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_serverStart(buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), calls::server_start)
    }

    Java_io_github_fodopv_JniServer_serverAdd(server: jlong, pv: jlong, token: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            calls::server_add(&*ServerObject::server(server)?, ServerObject::pv(pv)?, token, input, out)
        })
    }

    Java_io_github_fodopv_JniServer_serverRemove(server: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::server_remove(&*ServerObject::server(server)?, input, out))
    }

    Java_io_github_fodopv_JniServer_serverSettings(server: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::pairs(out, &ServerObject::server(server)?.settings()?);
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_serverCounts(server: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::counts(out, &ServerObject::server(server)?.counts());
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_serverQueue(server: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            out.handle(ServerObject::Queue(ServerObject::server(server)?.queue().clone()).handle());
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_serverClose(server: jlong) -> () {
        quietly((), || {
            if let Ok(server) = ServerObject::server(server) {
                server.close();
            }
        });
    }

    Java_io_github_fodopv_JniServer_next(queue: jlong, pause_ns: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::next(&*ServerObject::queue(queue)?, pause(pause_ns), out);
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_requestEnd(request: jlong, how: jint, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| {
            calls::request_end(&*ServerObject::request(request)?, how, input, out)
        })
    }

    Java_io_github_fodopv_JniServer_requestOpen(request: jlong) -> jint {
        quietly(0, || ServerObject::request(request).map_or(0, |request| request.is_open().into()))
    }

    Java_io_github_fodopv_JniServer_iocStart(buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), calls::ioc_start)
    }

    Java_io_github_fodopv_JniServer_iocSettings(ioc: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::pairs(out, &ServerObject::ioc(ioc)?.settings()?);
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_iocCounts(ioc: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::ioc_counts(&*ServerObject::ioc(ioc)?, out);
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_iocQueue(ioc: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            out.handle(ServerObject::Queue(ServerObject::ioc(ioc)?.queue.clone()).handle());
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_iocReloadAccess(ioc: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| calls::ioc_reload_access(&*ServerObject::ioc(ioc)?, out))
    }

    Java_io_github_fodopv_JniServer_iocRecord(ioc: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::ioc_record(&*ServerObject::ioc(ioc)?, input, out))
    }

    Java_io_github_fodopv_JniServer_iocSetMany(ioc: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::ioc_set_many(&*ServerObject::ioc(ioc)?, input, out))
    }

    Java_io_github_fodopv_JniServer_iocClose(ioc: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::ioc_close(&*ServerObject::ioc(ioc)?, out);
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_recordSet(record: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::record_set(&*ServerObject::record(record)?, input, out))
    }

    Java_io_github_fodopv_JniServer_recordGet(record: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            out.reading(&ServerObject::record(record)?.handle.read());
            Ok(())
        })
    }

    Java_io_github_fodopv_JniServer_recordPut(record: jlong, buf: jlong, n_input: jint, cap: jint) -> jint {
        reply(Buffer::new(buf, n_input, cap), |input, out| calls::record_put(&*ServerObject::record(record)?, input, out))
    }

    Java_io_github_fodopv_JniServer_putAwait(put: jlong, pause_ns: jlong, buf: jlong, cap: jint) -> jint {
        reply(Buffer::new(buf, 0, cap), |_, out| {
            calls::put_await(&*ServerObject::waiting_put(put)?, pause(pause_ns), out)
        })
    }
}
