// What the pages do by themselves. They work without this: it keeps them live, and adds keys.
//
// A part of a page that has an id and `data-live` is read anew from the page's own address when the event stream tells
// of a change. No part of the page is built here, so there is no second version of it to keep right.

const root = document.documentElement
const events = document.body.dataset.events
root.classList.add("script")

// Times: on the clock of whoever looks, with the schedule's zone and UTC on hover.

const zone = Intl.DateTimeFormat().resolvedOptions().timeZone
const shown = (at, timeZone, short) => {
  const seconds = at.getUTCSeconds() ? { second: "2-digit" } : {}
  const day = short ? {} : { day: "numeric", month: "short" }
  const parts = { weekday: "short", ...day, hour: "2-digit", minute: "2-digit", hourCycle: "h23" }
  return new Intl.DateTimeFormat("en-GB", { ...parts, ...seconds, timeZone }).format(at).replaceAll(",", "")
}

function away(at) {
  const seconds = Math.round((at - Date.now()) / 1000), left = Math.abs(seconds)
  if (left < 1) return "now"
  const units = [["d", 86400], ["h", 3600], ["m", 60], ["s", 1]]
  const first = units.findIndex(([, size]) => left >= size)
  const whole = Math.floor(left / units[first][1])
  let text = whole + units[first][0]
  if (first < 3) {
    const rest = Math.floor((left % units[first][1]) / units[first + 1][1])
    if (rest) text += ` ${rest}${units[first + 1][0]}`
  }
  return seconds > 0 ? `in ${text}` : `${text} ago`
}

function tellTimes(within) {
  for (const time of within.querySelectorAll("time")) {
    const at = new Date(time.dateTime)
    if ("away" in time.dataset) { time.textContent = away(at); continue }
    if ("second" in time.dataset) { time.textContent = at.toLocaleTimeString("en-GB", { timeZone: zone }); continue }
    const short = time.closest("[data-short]")
    time.textContent = shown(at, zone, short)
    if (short) short.hidden = shown(at, zone) === shown(at, time.dataset.zone ?? "UTC")  // it is the same clock
    const there = time.dataset.zone ? `${shown(at, time.dataset.zone)} in ${time.dataset.zone}\n` : ""
    time.title = `${shown(at, zone)} here, in ${zone}\n${there}${shown(at, "UTC")} UTC`
  }
}

// What is drawn is called by its time.
function callByTime(within) {
  for (const drawn of within.querySelectorAll("[data-at]")) {
    const name = `${shown(new Date(drawn.dataset.at), zone)}, ${drawn.dataset.called}`, title = drawn.querySelector("title")
    if (title) title.textContent = name; else drawn.setAttribute("aria-label", name)
  }
}

const keepAway = () => {
  for (const time of document.querySelectorAll("time[data-away]")) {
    const text = away(new Date(time.dateTime))
    if (time.textContent !== text) time.textContent = text
  }
}

// Live parts.

let asking = false, again = false, next = null, cost = 0, paused = sessionStorage.getItem("rota-paused") === "yes"

async function refresh(url = location.href, wanted = false) {
  if (asking) { if (wanted) next = url; else again = true; return }
  asking = true
  const began = performance.now()
  try {
    const answer = await fetch(url, { headers: { Accept: "text/html" } })
    if (answer.redirected && new URL(answer.url).pathname.endsWith("/sign-in")) { location.reload(); return }
    if (answer.ok) swap(new DOMParser().parseFromString(await answer.text(), "text/html"), wanted)
  } catch { /* the server is away; the stream says so, and asks again */ } finally {
    cost = performance.now() - began
    asking = false
    if (next) { const url = next; next = null; refresh(url, true) } else if (again) { again = false; later() }
  }
}

// Nothing jumps under a pointer that moves: a list or a strip below it waits, unless its reader asked for it.
let movedAt = -Infinity
document.addEventListener("mousemove", () => { movedAt = performance.now() })
const isPointedAt = part => performance.now() - movedAt < 4000 && part.matches(":hover") && part.querySelector("[data-rows], [data-strip]")

function swap(fresh, wanted) {
  for (const part of document.querySelectorAll("[data-live][id]")) {
    const next = fresh.getElementById(part.id)
    if (!next || next.innerHTML === part.dataset.was) continue
    if (!wanted && isPointedAt(part)) { again = true; continue }
    if (part.dataset.live === "unless-held" && part.contains(document.activeElement)) continue
    const was = next.innerHTML
    if (part.dataset.was === undefined && was === part.innerHTML) { part.dataset.was = was; continue }
    const ticked = new Set([...part.querySelectorAll(".tick input:checked")].map(box => box.value))
    const row = [...part.querySelectorAll("tr")].indexOf(part.querySelector("tr.at"))
    const held = part.contains(document.activeElement) ? held_by(part) : null
    tellTimes(next)
    callByTime(next)
    part.replaceChildren(...next.childNodes)
    part.dataset.was = was
    for (const box of part.querySelectorAll(".tick input")) box.checked = ticked.has(box.value)
    part.querySelectorAll("tr")[row]?.classList.add("at")
    if (held) part.querySelector(held)?.focus({ preventScroll: true })
    for (const strip of part.querySelectorAll("[data-strip]")) walkable(strip)
  }
  lookAgain()
  const built = fresh.querySelector("[data-built]")  // the line that the builder writes
  if (built) document.querySelector("input[name=when]").value = built.dataset.built
}

// A part that is still being made is asked for until it is there.
const lookAgain = () => { if (document.querySelector("[data-being-made]")) setTimeout(refresh, 1000) }

const held_by = part => {
  const at = document.activeElement
  if (at.getAttribute("href")) return `[href="${CSS.escape(at.getAttribute("href"))}"]`
  return at.name ? `[name="${CSS.escape(at.name)}"][value="${CSS.escape(at.value)}"]` : null
}

// The first change after a quiet while is shown at once; else a page is read at most every few seconds (two, if it is
// about one thing), and for a twentieth of the time: fifty open pages must not keep a server busy.
const pace = 1000 * (document.body.dataset.pace ?? 8)
let timer = 0, readAt = -pace
function later() {
  if (timer || paused || document.hidden || isFilledIn) return
  const rest = readAt + Math.max(pace, 20 * cost) - performance.now()
  timer = setTimeout(() => { timer = 0; readAt = performance.now(); refresh() }, Math.max(200, rest))
}

const light = document.getElementById("live")
function say(state, words) {
  if (!light) return
  light.dataset.state = state
  light.textContent = words
}

let stream = null, retry = 0
function listen() {
  stream?.close()
  if (paused) { say("paused", "paused"); return }
  stream = new EventSource(events)
  stream.onopen = () => { say("live", "live"); later() }  // what changed before the stream began is told by none
  stream.onerror = () => {
    say("off", "connecting")
    if (stream.readyState === EventSource.CLOSED) { clearTimeout(retry); retry = setTimeout(() => { listen(); later() }, 2 * pace) }  // refused: there are too many
  }
  const names = ["created", "started", "cancelling", "retrying", "rescheduled", "returned", "replayed", "completed", "failed", "cancelled", "expired", "skipped", "fired", "updated", "paused", "resumed", "deleted", "restored", "triggered", "backfilled", "backfill cancelled", "replanned"]
  for (const type of ["task", "run", "schedule"]) for (const name of names) stream.addEventListener(`${type}.${name}`, later)
  stream.addEventListener("resync", later)
}

function toggle() {
  paused = !paused
  sessionStorage.setItem("rota-paused", paused ? "yes" : "no")
  listen()
  if (!paused) refresh(location.href, true)
}

// Search as you type: the same form, asked for in the background, with its own address.

for (const form of document.querySelectorAll("form[data-search]")) {
  let wait = 0
  form.addEventListener("input", () => {
    clearTimeout(wait)
    wait = setTimeout(() => {
      const given = new URLSearchParams([...new FormData(form)].filter(([, value]) => value))
      history.replaceState(null, "", given.size ? `?${given}` : location.pathname)
      refresh(location.href, true)
    }, 180)
  })
}

// Saved views: addresses with a name, kept in this browser. Whoever is sent the address needs no name for it.

for (const place of document.querySelectorAll("[data-views]")) {
  const read = () => JSON.parse(localStorage.getItem(place.dataset.views) ?? "{}")
  const write = views => { localStorage.setItem(place.dataset.views, JSON.stringify(views)); draw() }
  const form = place.querySelector("[data-save]")
  const here = () => {
    const asked = new URLSearchParams(location.search)
    for (const name of ["cursor", "said", "number"]) asked.delete(name)
    return asked.toString()
  }
  const draw = () => {
    for (const old of place.querySelectorAll(".view")) old.remove()
    for (const [name, query] of Object.entries(read())) {
      const view = document.createElement("span"), link = document.createElement("a"), drop = document.createElement("button")
      view.className = "view chips"
      link.href = `?${query}`
      link.textContent = name
      if (query === here()) link.setAttribute("aria-current", "true")
      drop.type = "button"
      drop.className = "plain"
      drop.textContent = "×"
      drop.setAttribute("aria-label", `Forget the view ${name}`)
      drop.addEventListener("click", () => { const { [name]: _, ...rest } = read(); write(rest) })
      view.append(link, drop)
      place.insertBefore(view, form)
    }
  }
  form.addEventListener("submit", event => {
    event.preventDefault()
    write({ ...read(), [form.elements.name.value.trim()]: here() })
    form.reset()
  })
  draw()
}

// A form whose answer is shown while it is filled in.

for (const form of document.querySelectorAll("form[data-preview]")) {
  let wait = 0
  const look = event => {
    clearTimeout(wait)
    const wanted = form.dataset.preview.split(",")
    const isBuilt = event?.target.closest("[data-builder]")
    const given = new URLSearchParams([...new FormData(form)].filter(([name]) => wanted.includes(name) || isBuilt && name.startsWith("build_")))
    if (isBuilt) given.set("build", 1)
    wait = setTimeout(() => refresh(`?${given}`, true), 200)
  }
  form.addEventListener("input", look)
  form.addEventListener("click", event => {
    const start = event.target.closest("[data-start]")
    if (!start) return
    event.preventDefault()
    form.elements.type.value = start.dataset.start
    form.elements.when.value = start.dataset.when
    look()
  })
}
const isFilledIn = document.querySelector("form[data-preview]") !== null

// The strip: arrows move along it, and what is looked at is told below.

function walkable(strip) {
  const bars = [...strip.querySelectorAll("a")]
  const chosen = bars.find(bar => bar.getAttribute("aria-current")) ?? bars.filter(bar => bar.dataset.status !== "expected").at(-1) ?? bars[0]
  for (const bar of bars) bar.setAttribute("tabindex", bar === chosen ? "0" : "-1")
}

const why = bar => {
  const place = document.getElementById("why")
  if (!place || !bar) return
  const name = document.createElement("b")
  name.textContent = bar.getAttribute("aria-label")
  place.replaceChildren(name, ` ${bar.dataset.status === "expected" ? "" : bar.dataset.why}`)
}

document.addEventListener("focusin", event => why(event.target.closest?.("[data-strip] a")))
document.addEventListener("mouseover", event => why(event.target.closest?.("[data-strip] a")))

// Keys.

const isTyping = at => at.closest?.("input:not([type=checkbox]), textarea, select, dialog[open]")

function move(by) {
  const rows = [...document.querySelectorAll("[data-rows] tbody tr")]
  if (!rows.length) return
  const now = rows.findIndex(row => row.classList.contains("at"))
  const to = rows[Math.min(rows.length - 1, Math.max(0, now + by))]
  rows[now]?.classList.remove("at")
  to.classList.add("at")
  to.querySelector("a")?.focus()
  to.scrollIntoView({ block: "nearest" })
}

let went = false

document.addEventListener("keydown", event => {
  if (event.ctrlKey || event.metaKey || event.altKey) return
  const bar = event.target.closest?.("[data-strip] a")
  if (bar && ["ArrowLeft", "ArrowRight", "Home", "End"].includes(event.key)) {
    const bars = [...bar.closest("[data-strip]").querySelectorAll("a")], at = bars.indexOf(bar)
    const to = { ArrowLeft: at - 1, ArrowRight: at + 1, Home: 0, End: bars.length - 1 }[event.key]
    event.preventDefault()
    if (bars[to]) { bar.setAttribute("tabindex", "-1"); bars[to].setAttribute("tabindex", "0"); bars[to].focus() }
    return
  }
  if (isTyping(event.target)) { if (event.key === "Escape") event.target.blur(); return }
  const place = went && /^[a-z]$/.test(event.key) && document.querySelector(`.top nav [data-go=${event.key}]`)
  if (place) { place.click(); return }
  went = event.key === "g"
  const deeds = {
    "/": () => document.querySelector("input[type=search]")?.focus(),
    "?": () => document.getElementById("help").showModal(),
    j: () => move(1),
    k: () => move(-1),
    x: () => document.querySelector("tr.at input[type=checkbox]")?.click(),
    l: toggle,
  }
  if (event.key in deeds) { event.preventDefault(); deeds[event.key]() }
})

document.addEventListener("change", () => {
  const ticked = document.querySelectorAll(".tick input:checked").length
  for (const place of document.querySelectorAll("[data-selected]")) place.textContent = ticked ? `${ticked} selected` : "selected"
})

document.querySelector(".top nav [aria-current]")?.scrollIntoView({ inline: "center", block: "nearest" })
tellTimes(document)
callByTime(document)
for (const strip of document.querySelectorAll("[data-strip]")) walkable(strip)
setInterval(keepAway, 1000)

// A page of hours shows those of whoever looks, unless its address says whose.
if (document.querySelector("form[data-zone]") && zone !== "UTC" && !new URLSearchParams(location.search).has("zone")) {
  const there = new URL(location.href)
  there.searchParams.set("zone", zone)
  location.replace(there)
}
if (events) {
  listen()
  let seconds = 0  // what no event tells of, such as a line of a log, is looked for every so often
  setInterval(() => { if (++seconds % (document.querySelector("[data-beat]")?.dataset.beat ?? Infinity) === 0) later() }, 1000)
  light?.addEventListener("click", toggle)
  document.addEventListener("visibilitychange", () => { if (!document.hidden) { listen(); later() } else if (!paused) stream?.close() })
}
