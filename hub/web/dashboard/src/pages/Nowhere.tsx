import { t } from "../text/en";
import { ButtonLink, Empty } from "../ui/kit";

export default function Nowhere() {
  return (
    <Empty title={t.nowhere.title} action={<ButtonLink to="/">{t.nowhere.go}</ButtonLink>}>
      {t.nowhere.text}
    </Empty>
  );
}
