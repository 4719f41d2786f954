"use strict";

// Everything works without scripts. They only show the fields that apply, and refresh the activity page.

const start = document.getElementById("from");
if (start) {
  const update = () => {
    for (const label of document.querySelectorAll("[data-for]")) {
      label.hidden = label.dataset.for !== start.value;
    }
  };
  start.addEventListener("change", update);
  update();
}

const refresh = document.getElementById("refresh");
if (refresh) {
  let timer = 0;
  const update = () => {
    clearTimeout(timer);
    sessionStorage.setItem("refresh", refresh.checked ? "1" : "");
    if (refresh.checked) {
      timer = setTimeout(() => location.reload(), 5000);
    }
  };
  refresh.checked = sessionStorage.getItem("refresh") === "1";
  refresh.addEventListener("change", update);
  update();
}
