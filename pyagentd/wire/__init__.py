"""The wire: EPC frames over a unix socket or TCP; the only room that knows the protocol."""
