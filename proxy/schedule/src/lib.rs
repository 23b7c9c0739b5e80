//! Decides when costly learning may run: while the owner is away.
//!
//! The decision is a pure function ([`decide`]) of a clock and facts: when the last main turn ended, when the keyboard
//! was last touched, the calendar, and the power supply. The facts come from elsewhere: the log, the display
//! ([`KeyboardWatch`]), calendar files ([`Calendar`]), the system ([`on_battery`]). This crate uses no network. For a
//! calendar's address, the caller passes the text. [`Schedule`] holds rules and facts together.

mod calendar;
mod config;
mod decision;
mod intervals;
mod keyboard;
mod schedule;
mod sleep;

pub use crate::{
    calendar::{Calendar, CalendarError, MAX_CALENDAR},
    config::{GoogleCalendarConfig, SchedulerConfig, TimeOfDay, TimeOfDayError},
    decision::{Facts, Keyboard, Next, Obstacle, Opening, Rules, Window, decide, next_window},
    intervals::Interval,
    keyboard::{Displays, KeyboardWatch},
    schedule::{POWER_SUPPLIES, SavedState, Schedule, StateError, on_battery},
    sleep::{SleepHours, local_clock},
};
