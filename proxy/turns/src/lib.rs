//! The durable turn log on sled.
