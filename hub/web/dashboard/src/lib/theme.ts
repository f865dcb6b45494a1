import { store } from "./store";

export type Theme = "auto" | "light" | "dark";

const key = "tugline.theme";

function remembered(): Theme {
  try {
    const v = localStorage.getItem(key);
    return v === "light" || v === "dark" ? v : "auto";
  } catch {
    return "auto"; // a browser that keeps nothing
  }
}

export const theme = store<Theme>(remembered());

function show() {
  document.documentElement.dataset.theme = theme.get();
}

export function startTheme() {
  show();
  theme.listen(() => {
    show();
    try {
      localStorage.setItem(key, theme.get());
    } catch {
      // It holds until the page is closed.
    }
  });
}
